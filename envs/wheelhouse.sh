#!/usr/bin/env bash
# Bring all that an install fetches into one folder, for machines without a network: envs/wheelhouse.sh FOLDER
# It is what the .venv here has: for this Python, this processor, and for GPUs if it was made with GPU=1. Each file is
# checked against its digest in envs/lock.txt. Horovod comes twice: as the wheel that was built here, and as its source,
# which is built again where Python, torch or glibc are others.
# There: make install WHEELHOUSE=FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
python=.venv/bin/python
gpu=$([ ! -e .venv/.installed-gpu ] || echo 1)
dali=$(cat .venv/.installed-gpu 2>/dev/null || echo cuda120)
[ "$dali" = cuda120 ] && other_dali=cuda130 || other_dali=cuda120
mkdir -p "$folder"
bring() {
    "$python" envs/locked.py --wheelhouse="$folder" "$@"
}

wanted=$(mktemp)
trap 'rm -f "$wanted"' EXIT
grep -v "^nvidia-dali-$other_dali" envs/requirements.txt >"$wanted"
bring torch numpy cmake ninja packaging psutil setuptools wheel uv
bring --no-build-isolation deepspeed
bring --no-build-isolation -r "$wanted"
[ -z "$gpu" ] || bring -r envs/gpu.txt -r "envs/dali-$dali.txt"
[ -e .venv/.without-horovod ] || "envs/build-horovod${gpu:+-nccl}.sh" "$python" "$folder"
echo "$folder: $(find "$folder" -type f | wc -l) files, $(du -sh "$folder" | cut -f1). Without a network: make install WHEELHOUSE=<this folder>"
