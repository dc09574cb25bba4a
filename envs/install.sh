#!/usr/bin/env bash
# Make .venv and install everything ddlbench needs on one machine: envs/install.sh
# `make` runs it when the requirements are newer than .venv. One line per step; what the steps say is in
# .venv/install.log. About 5 minutes on 2 cores beside the downloads, most of it Horovod's build.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3.11}
venv=.venv
log=$venv/install.log
steps=6
count=0

stop() {
    printf '%s\n' "$@" >&2
    exit 1
}

# What to do, judged by what the failed step wrote: advise STEP-LOG DEFAULT
advise() {
    if grep -q "No space left on device" "$1"; then
        echo "The disk is full: .venv needs 3 GB with PyTorch's CPU build, and several more with CUDA's."
    elif grep -qE "No matching distribution|ResolutionImpossible|name resolution|Connection|timed out|SSLError|Retrying" "$1"; then
        echo "A package could not be fetched in the version that is pinned. Is the network there? Behind a proxy or a mirror, tell pip: \`pip config\`."
    else
        echo "$2"
    fi
}

# One line on the screen, the rest in the log: step TITLE ADVICE COMMAND...
step() {
    local title=$1 advice=$2 begin=$SECONDS said=$venv/install.step
    shift 2
    count=$((count + 1))
    printf 'install %d/%d: %s ... ' $count $steps "$title"
    local outcome=done
    "$@" >"$said" 2>&1 || outcome=failed
    { printf '\n== %s\n' "$title" && cat "$said"; } >>"$log"
    if [ $outcome = done ]; then
        echo "$((SECONDS - begin)) s"
        return
    fi
    echo "failed"
    # Without pip's warnings, which say nothing about an error: the first errors, then the end.
    {
        { grep -vE "^ *WARNING: " "$said" || true; } >"$said.errors"
        grep -iE "\berror\b" "$said.errors" | head -n 5 || true
        echo "..."
        tail -n 15 "$said.errors"
        echo
        echo "install stopped at step $count: $title. All of it: $log"
        advise "$said" "$advice"
    } >&2
    exit 1
}

"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null ||
    stop "ddlbench needs Python 3.11 ('$python' is not): install it, or say where it is: make demo PYTHON=/path/to/python3.11"
missing=()
for tool in g++ make git; do
    command -v $tool >/dev/null || missing+=($tool)
done
[ ${#missing[@]} = 0 ] || stop "missing: ${missing[*]}. On Debian or Ubuntu: apt-get install ${missing[*]}"
"$python" -c 'import sysconfig, pathlib, sys; sys.exit(not pathlib.Path(sysconfig.get_paths()["include"], "Python.h").exists())' ||
    stop "Python's headers are missing (Horovod is compiled). On Debian or Ubuntu: apt-get install python3.11-dev"
"$python" -c 'import ensurepip' 2>/dev/null ||
    stop "Python's venv module is missing. On Debian or Ubuntu: apt-get install python3.11-venv"

# Constraints hold for every step: without them pip would trade the chosen torch for another.
export PIP_CONSTRAINT=$PWD/envs/constraints.txt
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }
# A venv that was killed while it was made has a Python, but no pip.
environment() { pip --version || "$python" -m venv $venv; }
everything_else() {
    pip install -q -r envs/requirements.txt && pip install -q --no-deps --no-build-isolation -e .
}

again="Mend that and run it again; what is installed already stays."
mkdir -p $venv
printf '%s: envs/install.sh\n' "$(date -u +%FT%TZ)" >"$log"
step "a virtual environment in $venv" "Remove $venv and try again." environment
step "torch, and what the next steps build with" "$again" \
    pip install -q torch numpy cmake ninja packaging psutil setuptools wheel
step "DeepSpeed, set up for the torch that is there" "Is g++ able to compile? apt-get install g++ make" \
    env DS_BUILD_OPS=0 "$venv/bin/python" -m pip --disable-pip-version-check install -q --no-build-isolation deepspeed
step "everything else (envs/requirements.txt)" "$again" everything_else
step "Horovod (about 5 minutes where it is built for the first time)" \
    "Horovod is compiled. On Debian or Ubuntu: apt-get install g++ make python3.11-dev; for MPI also libopenmpi-dev openmpi-bin, or leave MPI out: HOROVOD_WITHOUT_MPI=1 make install" \
    envs/build-horovod.sh "$venv/bin/python"
step "do all versions fit each other?" "$again" pip check
touch $venv/.installed
