#!/usr/bin/env bash
# Build Horovod as envs/build-horovod.sh does, for GPUs: against the CUDA and NCCL of the wheels that torch brought.
# Usage: envs/build-horovod-nccl.sh .venv/bin/python
# It needs no GPU, no driver and no CUDA of the system: the compiler is a wheel too (envs/gpu.txt). CUDA_HOME names
# another toolkit; its major version must be torch's. HOROVOD_BUILD_CUDA_CC_LIST says for which GPUs (default: A100 and
# H100).
set -euo pipefail
python=$1
major=$("$python" -c 'import torch; print((torch.version.cuda or "").split(".")[0])')
if [ -z "$major" ]; then
    echo "this torch is a build without CUDA, so Horovod cannot be built with NCCL: pip took it from where it is" \
        "configured to look (\`pip config list\`, PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL)" >&2
    exit 1
fi
site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
wheels=$site/nvidia/cu$major
if [ ! -e "$site/nvidia/nccl/lib/libnccl.so.2" ]; then
    echo "NCCL is not among the packages of this environment, as with a PyTorch of the site (TORCH=site): Horovod is" \
        "built for the NCCL of the wheels that torch brings. Leave it out: HOROVOD=0" >&2
    exit 1
fi
# Wheels hold libraries under the names that programs load; these are the names that linkers look for.
ln -sfn libnccl.so.2 "$site/nvidia/nccl/lib/libnccl.so"
if [ -z "${CUDA_HOME:-}" ]; then
    export CUDA_HOME=$wheels
    ln -sfn lib "$wheels/lib64"
    ln -sfn "libcudart.so.$major" "$wheels/lib/libcudart.so"
fi
if ! "$CUDA_HOME/bin/nvcc" --version | grep -q "release $major\."; then
    echo "CUDA_HOME=$CUDA_HOME has no nvcc of CUDA $major, which torch was built with; without CUDA_HOME the one of" \
        "envs/gpu.txt is taken" >&2
    exit 1
fi
export HOROVOD_CUDA_HOME=$CUDA_HOME # else torch guesses from where nvcc lies on the path
export HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_NCCL_HOME=$site/nvidia/nccl HOROVOD_NCCL_LINK=SHARED
export HOROVOD_BUILD_CUDA_CC_LIST=${HOROVOD_BUILD_CUDA_CC_LIST:-80,90}
exec "$(dirname "$0")/build-horovod.sh" "$@"
