"""Compiles the pretended GPU for the PyTorch that is installed, and says what is missing for it."""

import importlib.util
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
SITE = Path(sysconfig.get_paths()["purelib"])
INCLUDE = "nvidia/cu13/include"
# PyTorch's libraries, whose functions of NVIDIA's must all be there.
ASKING = ("torch_cuda", "c10_cuda", "torch_python", "caffe2_nvrtc", "torch_cuda_linalg")
ASKED = re.compile(r"^(?:__cuda|cuda[A-Z]|cu[A-Z]|cublas|cudnn|nccl)")
THEIRS = re.compile(r"^(?:cufft|cuFile|cusparse|cusolver|cupti)")  # real libraries that need no device to be loaded
NAMES = ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1")  # those that are opened by name


def lacks() -> str | None:
    """Why there is none here, or None."""
    if shutil.which("gcc") is None or shutil.which("nm") is None:
        return "no gcc or nm, which make the pretended GPU: apt-get install gcc binutils"
    spec = importlib.util.find_spec("torch")
    if spec is None or not (SITE / "torch/lib/libtorch_cuda.so").exists():
        return "torch is no build for CUDA: make install GPU=1"
    if not (SITE / INCLUDE / "cuda_runtime_api.h").exists():
        return f"no {INCLUDE}, CUDA 13's headers, beside torch: make install GPU=1"
    return None


def symbols(library: Path, which: str) -> set[str]:
    """Names of functions that a library defines or needs, without their versions. Raises CalledProcessError."""
    said = subprocess.run(["nm", "-D", which, str(library)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in said.splitlines()}


def build(folder: Path) -> Path:
    """The library, made in this folder. Raises CalledProcessError."""
    compile_ = ["gcc", "-O1", "-w", "-fPIC", "-shared", f"-I{SITE / INCLUDE}", str(HERE / "gpu.c")]
    own, library, rest = folder / "own.so", folder / "libpretended.so", folder / "rest.c"
    subprocess.run([*compile_, "-o", str(own), "-lpthread", "-lrt"], check=True)
    wanted = set().union(*(symbols(SITE / f"torch/lib/lib{name}.so", "--undefined-only") for name in ASKING))
    generated = {name for name in wanted if ASKED.match(name) and not THEIRS.match(name)}
    generated -= symbols(own, "--defined-only")
    rest.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(generated)))
    subprocess.run([*compile_, str(rest), "-o", str(library), "-lpthread", "-lrt"], check=True)
    for name in NAMES:
        (folder / name).symlink_to(library)
    return library


def environment(library: Path, gpus: int) -> dict[str, str]:
    """Variables of a process that shall see so many pretended GPUs."""
    path = os.pathsep.join(filter(None, [str(library.parent), os.environ.get("LD_LIBRARY_PATH")]))
    # Horovod would put tensors together by a kernel of its own.
    one_by_one = {"HOROVOD_BATCH_D2D_MEMCOPIES": "0"}
    return {"LD_PRELOAD": str(library), "LD_LIBRARY_PATH": path, "PRETENDED_GPUS": str(gpus), **one_by_one}
