#!/usr/bin/env bash
# Make .venv and install everything ddlbench needs on one machine: envs/install.sh
# `make` runs it when the requirements are newer than .venv. One line per step; what the steps say is in
# .venv/install.log. About 5 minutes on 2 cores, most of it Horovod's build, beside which the others are fetched.
# Environment: PYTHON=/path/to/python3.12   Python 3.11 to 3.13; python3.11 goes first.
#              GPU=1                        for training on GPUs: Horovod with NCCL. No GPU or CUDA is needed here. 0: without.
#              DALI=cuda130                 with GPU=1: DALI built for CUDA 13, 1 GB smaller than the default, cuda120.
#              HOROVOD=0                    without Horovod: its runs are refused by name, all else works. HOROVOD=1
#                                           adds it later.
#              INSTALLER=pip                pip fetches, in place of uv: slower, but it knows more places.
#              TORCH=site                   the PyTorch (torchvision, NCCL) that PYTHON finds, as a module or an image has
#                                           it, stays and is used; the rest is installed beside it.
#              WHEELHOUSE=folder            without a network: all comes from this folder, which `make wheelhouse` filled.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv
log=$venv/install.log
# What was installed for GPUs stays so when requirements change.
gpu=${GPU:-$([ ! -e $venv/.installed-gpu ] || echo 1)}
gpu=${gpu#0}
dali=${DALI:-$(cat $venv/.installed-gpu 2>/dev/null || true)}
dali=${dali:-cuda120}
horovod=${HOROVOD:-$([ -e $venv/.without-horovod ] && echo 0 || echo 1)}
torch=${TORCH:-$([ ! -e $venv/.torch-site ] || echo site)}
count=0

stop() {
    printf '%s\n' "$@" >&2
    exit 1
}

# What to do, judged by what the failed step wrote: advise STEP-LOG DEFAULT
advise() {
    if grep -qE "No space left on device|Disk quota exceeded" "$1"; then
        echo "The disk is full: .venv needs 3 GB with PyTorch's CPU build, and several more with CUDA's."
    elif grep -qE "DO NOT MATCH THE HASHES|Hash mismatch|is not in envs/lock.txt" "$1"; then
        echo "What pip was given is not what envs/lock.txt names. Where does pip look? \`pip config list\`, PIP_INDEX_URL, PIP_EXTRA_INDEX_URL and PIP_FIND_LINKS say it. Builds of torch of your own need a label in their version, such as 2.13.0+cpu."
    elif [ -n "${WHEELHOUSE:-}" ] && grep -qE "No matching distribution|ResolutionImpossible|No solution found" "$1"; then
        echo "$WHEELHOUSE lacks a file for this Python ($version, $(uname -m)) or this checkout: \`make wheelhouse\` again, with the same commit and PYTHON, and GPU=1 if it is asked for here."
    elif grep -qE "No matching distribution|ResolutionImpossible|No solution found|Failed to (fetch|download)|name resolution|Connection|timed out|SSLError|Retrying" "$1"; then
        echo "A package could not be fetched in the version that is pinned. Is the network there? Behind a proxy or a mirror, tell pip: \`pip config\`. INSTALLER=pip leaves uv out."
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
        grep "^note: " "$said" || true
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

[[ $gpu =~ ^1?$ ]] || stop "GPU=$gpu: allowed: 1, or nothing for an environment without GPUs"
[[ $dali =~ ^cuda1[23]0$ ]] || stop "DALI=$dali: allowed: cuda120, cuda130"
[ "$gpu" = 1 ] || [ "$dali" = cuda120 ] || stop "DALI=$dali: allowed with GPU=1 only; without it DALI is cuda120"
[[ $torch =~ ^(site)?$ ]] || stop "TORCH=$torch: allowed: site, or nothing for the PyTorch that envs/lock.txt names"
[ "$torch" != site ] || [ -e $venv/.torch-site ] || [ ! -e $venv/.installed ] ||
    stop "TORCH=site: $venv was made with a PyTorch of its own: make clean, and again"
[[ $horovod =~ ^[01]$ ]] || stop "HOROVOD=$horovod: allowed: 0, 1"
[ "$dali" = cuda120 ] && other_dali=cuda130 || other_dali=cuda120
steps=$((${gpu:-0} + horovod + 5))
suits() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12), (3, 13)))' 2>/dev/null; }
python=${PYTHON:-$(for one in python3.11 python3.12 python3.13; do ! suits $one || { echo $one && break; }; done)}
python=${python:-python3.11}
suits "$python" ||
    stop "ddlbench needs Python 3.11, 3.12 or 3.13 ('$python' is none of them): install it, or say where it is: make demo PYTHON=/path/to/python3.11"
if [ -n "${WHEELHOUSE:-}" ]; then
    [ -d "$WHEELHOUSE" ] || stop "WHEELHOUSE=$WHEELHOUSE: there is no such folder. \`make wheelhouse\` fills one, where a network is."
    WHEELHOUSE=$("$python" -c 'import os, sys; print(os.path.abspath(sys.argv[1]))' "$WHEELHOUSE")
    # As a URL, because pip takes a space for the end of a place. What pip and uv are configured to use is left aside.
    PIP_FIND_LINKS=$("$python" -c 'import pathlib, sys; print(pathlib.Path(sys.argv[1]).as_uri())' "$WHEELHOUSE")
    export WHEELHOUSE PIP_FIND_LINKS PIP_NO_INDEX=1 PIP_CONFIG_FILE=/dev/null UV_NO_CONFIG=1 UV_OFFLINE=1
    unset PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_CONSTRAINT
fi
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
# Where the site's PyTorch lies, found once: later its module may not be loaded.
if [ "$torch" = site ]; then
    DDLBENCH_SITE=$(cat $venv/.torch-site 2>/dev/null || "$python" envs/site_torch.py) || exit 1
    export DDLBENCH_SITE
fi
# A module of the site may put its packages there: `pip check` would judge them, and Horovod be built for their torch.
unset PYTHONPATH PYTHONHOME
# pip, uv and Horovod's wheel are cached at home, which some machines have not, or let nobody write.
cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
if [ -z "$cache" ] || ! mkdir -p "$cache" 2>/dev/null || [ ! -w "$cache" ]; then
    export XDG_CACHE_HOME=$PWD/$venv/cache
fi
missing=()
for tool in g++ make git; do
    command -v $tool >/dev/null || missing+=($tool)
done
[ ${#missing[@]} = 0 ] || stop "missing: ${missing[*]}. On Debian or Ubuntu: apt-get install ${missing[*]}"
[ $horovod = 0 ] || "$python" -c 'import sysconfig, pathlib, sys; sys.exit(not pathlib.Path(sysconfig.get_paths()["include"], "Python.h").exists())' ||
    stop "Python's headers are missing (Horovod is compiled). On Debian or Ubuntu: apt-get install python$version-dev"
"$python" -c 'import ensurepip' 2>/dev/null ||
    stop "Python's venv module is missing. On Debian or Ubuntu: apt-get install python$version-venv"

pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }
locked() { "$venv/bin/python" envs/locked.py "$@"; }  # in the versions of envs/lock.txt, each file by its digest
# A venv that was killed while it was made has a Python, but no pip. Without uv, pip does all.
environment() {
    pip --version || "$python" -m venv $venv || return 1
    # At the end of the path: what is installed here comes first. PYTHONPATH is not asked when jobs run.
    [ "$torch" != site ] || {
        echo "$DDLBENCH_SITE" >"$venv/lib/python$version/site-packages/site-torch.pth" &&
            echo "$DDLBENCH_SITE" >$venv/.torch-site
    } || return 1
    grep "^uv==" envs/lock.txt >$venv/uv.txt || true
    [ "${INSTALLER:-}" = pip ] || [ ! -s $venv/uv.txt ] || pip install -q --no-deps --require-hashes -r $venv/uv.txt || true
}
torch_first() {
    locked torch numpy cmake ninja packaging psutil setuptools wheel || return 1
    [ "$gpu" != 1 ] || "$venv/bin/python" -c 'import sys, torch; sys.exit(torch.version.cuda is None)' || {
        echo "ERROR: GPU=1, but the torch that pip gives here is a build without CUDA."
        return 1
    }
}
everything_else() {
    grep -v "^nvidia-dali-$other_dali" envs/requirements.txt >$venv/requirements.txt &&
        locked -r $venv/requirements.txt &&
        pip install -q --no-deps --no-build-isolation -e . || return 1
    [ $horovod = 1 ] || pip uninstall -q -y horovod # it may be there, built for another torch
    # uv leaves it to the first import, where all ranks of a run do it at once; and some machines let none of them keep
    # it (PYTHONDONTWRITEBYTECODE): `import torch` then takes twice as long in every process. Some files are templates.
    "$venv/bin/python" -m compileall -qq -j 0 $venv/lib workflow/ddlbench recorder || true
}
# The site's packages may ask for other versions of each other: that is said and stops nothing.
fitting() {
    [ "$torch" = site ] || { pip check; return; }
    pip check | sed 's/^/note: /'
}
# Both builds of DALI are the same Python package: the other one goes first.
deepspeed() { DS_BUILD_OPS=0 locked --no-build-isolation deepspeed; }
for_gpus() { pip uninstall -q -y "nvidia-dali-$other_dali" && locked -r envs/gpu.txt -r "envs/dali-$dali.txt"; }
# In a group of processes of its own, so that nothing of it goes on if another step fails.
begin_horovod() {
    set -m
    "envs/build-horovod${gpu:+-nccl}.sh" "$venv/bin/python" >$venv/install.horovod 2>&1 &
    set +m
    building=$!
    trap 'kill -- -$building 2>/dev/null || true' EXIT
}
horovod_built() {
    local outcome=0
    wait $building || outcome=$?
    trap - EXIT
    cat $venv/install.horovod
    return $outcome
}

again="Fix that and run it again; what is installed already stays."
torch_advice=$again
[ "$gpu" != 1 ] || torch_advice="pip looks where \`pip config list\`, PIP_FIND_LINKS and PIP_EXTRA_INDEX_URL say; torch as published for Linux has CUDA. If $venv was made before for CPUs only: make clean, and again."
mkdir -p $venv
printf '%s: envs/install.sh\n' "$(date -u +%FT%TZ)" >"$log"
step "a virtual environment in $venv" "Remove $venv and try again." environment
step "torch, and what the next steps build with" "$torch_advice" \
    torch_first
[ "$gpu" != 1 ] || step "for GPUs: a compiler, and DALI for $dali (envs/gpu.txt, envs/dali-$dali.txt)" "$again" for_gpus
[ $horovod = 0 ] || begin_horovod
step "DeepSpeed, set up for the torch that is there" "Is g++ able to compile? apt-get install g++ make" \
    deepspeed
step "everything else (envs/requirements.txt)" "$again" everything_else
[ $horovod = 0 ] || step "Horovod${gpu:+ with NCCL} (begun above; about 5 minutes where it is built for the first time)" \
    "Horovod is compiled. On Debian or Ubuntu: apt-get install g++ make python$version-dev; or leave Horovod out: make install HOROVOD=0" \
    horovod_built
step "do all versions fit each other?" "$again" fitting
[ "$gpu" != 1 ] || echo "$dali" >$venv/.installed-gpu
touch $venv/.installed
if [ $horovod = 0 ]; then touch $venv/.without-horovod; else rm -f $venv/.without-horovod; fi
