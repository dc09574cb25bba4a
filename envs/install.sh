#!/usr/bin/env bash
# Make .venv and install everything ddlbench needs on one machine: envs/install.sh
# About 5 minutes on 2 cores, most of it Horovod's build; `make` runs it when the requirements are newer than .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3.11}
venv=.venv
step() { printf '\n== install %s\n' "$*"; }

"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || {
    echo "ddlbench needs Python 3.11 ('$python' is not): install it, or say where it is: make demo PYTHON=/path/to/python3.11" >&2
    exit 1
}
for tool in g++ make git; do
    command -v $tool >/dev/null || { echo "$tool is missing: apt-get install g++ make git" >&2; exit 1; }
done
if [ ! -x $venv/bin/python ]; then
    step "1/5: a virtual environment in $venv"
    "$python" -m venv $venv || {
        rm -rf $venv
        echo "Python's venv module is missing: apt-get install python3.11-venv python3.11-dev" >&2
        exit 1
    }
fi
"$venv/bin/python" -c 'import sysconfig, pathlib, sys; sys.exit(not pathlib.Path(sysconfig.get_paths()["include"], "Python.h").exists())' || {
    echo "Python's headers are missing (Horovod is compiled): apt-get install python3.11-dev" >&2
    exit 1
}
# Constraints hold for every step: without them pip would trade the chosen torch for another.
export PIP_CONSTRAINT=$PWD/envs/constraints.txt
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

step "2/5: torch, and what the next steps build with"
pip install -q torch numpy cmake ninja packaging psutil setuptools wheel
step "3/5: DeepSpeed (built against the torch that is there)"
DS_BUILD_OPS=0 pip install -q --no-build-isolation deepspeed
step "4/5: everything else"
pip install -q -r envs/requirements.txt
pip install -q --no-deps --no-build-isolation -e .
step "5/5: Horovod, from its source release"
envs/build-horovod.sh "$venv/bin/python"
pip check
touch $venv/.installed
