#!/usr/bin/env bash
# Build Horovod 0.28.1 from its source release against the torch of the given Python, and install it.
# Usage: envs/build-horovod.sh .venv/bin/python      (for GPUs envs/build-horovod-nccl.sh, which calls this one)
# With a folder as second argument nothing is installed: source and wheel are brought there. WHEELHOUSE is such a folder.
# With Gloo and without MPI, whether or not an MPI is there.
# About 5 minutes on 2 cores; the wheel is cached, keyed on Python, torch and options, in
# ${XDG_CACHE_HOME:-~/.cache}/ddlbench.
# Why not `pip install horovod`: 0.28.1 exists as source only and asks for C++14 where torch's headers want C++17 or C++20;
# and GCC 13 and later do not compile it.
set -euo pipefail
python=$(realpath -s "$1")
folder=${2:-}
version=0.28.1
sha256=92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0

export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITH_GLOO=1
export HOROVOD_WITHOUT_MPI=1
unset HOROVOD_WITH_MPI
export CMAKE_POLICY_VERSION_MINIMUM=3.5 MAKEFLAGS="-j$(nproc)"

tag=$("$python" -c 'import sys, platform, torch; print(f"cp{sys.version_info.major}{sys.version_info.minor}-torch{torch.__version__}-{platform.machine()}-glibc{platform.libc_ver()[1]}")')
gpus=${HOROVOD_BUILD_CUDA_CC_LIST:-}
options="${HOROVOD_GPU_OPERATIONS:-cpu}${gpus:+-cc${gpus//,/+}}-gloo"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/ddlbench/horovod-$version-includes${gpus:+-origin}-$tag-$options"
brought="${WHEELHOUSE:-}/$(basename "$cache")"
if [ -n "${WHEELHOUSE:-}" ] && ls "$brought"/horovod-*.whl >/dev/null 2>&1; then
    cache=$brought
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Into a folder: download_source FOLDER
download_source() {
    printf 'horovod==%s --hash=sha256:%s\n' "$version" "$sha256" > "$work/requirements.txt"
    "$python" -m pip download -q --no-deps --no-build-isolation --no-binary horovod --require-hashes \
        -d "$1" -r "$work/requirements.txt"
}
if ! ls "$cache"/horovod-*.whl >/dev/null 2>&1; then
    download_source "$work/sdist"
    tar -xzf "$work/sdist/horovod-$version.tar.gz" -C "$work"
    source="$work/horovod-$version"
    # torch's headers refuse less than C++20 from 2.14 on (github.com/pytorch/pytorch, issue 176662), C++17 before.
    includes=$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')/include
    standard=17
    ! grep -qs 202002L "$includes/ATen/ATen.h" || standard=20
    sed -i "s/set(CMAKE_CXX_STANDARD 14)/set(CMAKE_CXX_STANDARD $standard)/" \
        "$source/CMakeLists.txt" "$source/horovod/torch/CMakeLists.txt"
    # A cached wheel looked for libraries in the .venv that built it; those of its own .venv go first.
    beside='$ORIGIN/../../torch/lib;$ORIGIN/../../nvidia/nccl/lib;$ORIGIN/../../nvidia/cu13/lib'
    sed -i '/^project(/a set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)\nset(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)' "$source/CMakeLists.txt"
    sed -i "/^project(/a set(CMAKE_INSTALL_RPATH \"$beside\")" "$source/CMakeLists.txt"
    # Other headers of libstdc++ 13 and later no longer bring these along (Horovod's PR 3957, which was never released).
    sed -i '0,/^#include <string>/s//#include <stdexcept>\n&/' "$source/horovod/common/common.h"
    sed -i '0,/^#include <unordered_map>/s//#include <string>\n&/' "$source/horovod/common/group_table.h"
    # Without NCCL it would still want all of CUDA where torch has CUDA and an nvcc is on the path.
    [ -n "${HOROVOD_GPU_OPERATIONS:-}" ] || sed -i 's/(torch.version.cuda is not None) and (CUDA_HOME is not None)/False/' \
        "$source/cmake/Modules/FindPytorch.cmake"
    # GCC 14 refuses an assignment to a constant in a template that nobody uses.
    sed -i 's/^  const size_type count_;/  size_type count_;/' \
        "$source/third_party/flatbuffers/include/flatbuffers/stl_emulation.h"
    echo "building Horovod $version ($options); about 5 minutes on 2 cores" >&2
    # The venv's cmake (< 4) and ninja go first: Horovod's build files predate CMake 4.
    PATH="$(dirname "$python"):$PATH" "$python" -m pip wheel -q --no-deps --no-build-isolation \
        -w "$work/wheel" "$source"
    # Aside first: a disk that is full leaves a part of the wheel.
    mkdir -p "$(dirname "$cache")"
    trap 'rm -rf "$work" "$cache.$$"' EXIT
    mv "$work/wheel" "$cache.$$"
    rm -rf "$cache"
    mv -T "$cache.$$" "$cache"
fi
if [ -n "$folder" ]; then
    download_source "$folder"
    mkdir -p "$folder/$(basename "$cache")"
    cp "$cache"/horovod-*.whl "$folder/$(basename "$cache")"
    exit
fi
# Forced: it may be there with other options, under the same version.
"$python" -m pip install -q --no-deps --force-reinstall "$cache"/horovod-*.whl
