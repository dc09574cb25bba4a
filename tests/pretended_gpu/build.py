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
TRITON = "triton/backends/nvidia/driver.c"  # compiled where torch.compile asks for it
WAITS, PRETENDED = "libwaits.so", "libpretended.so"
NAMES = ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1")  # those that are opened by name


def lacks() -> str | None:
    """Why neither it can be made here nor what counts waits, or None."""
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


def build(folder: Path) -> None:
    """Both libraries, made in this folder. Raises CalledProcessError."""
    compile_ = ["gcc", "-O1", "-w", "-fPIC", "-shared", f"-I{SITE / INCLUDE}"]
    own, library, rest = folder / "own.so", folder / PRETENDED, folder / "rest.c"
    subprocess.run([*compile_, str(HERE / "waits.c"), "-o", str(folder / WAITS), "-ldl"], check=True)
    compile_.append(str(HERE / "gpu.c"))
    subprocess.run([*compile_, "-o", str(own), "-lpthread", "-lrt"], check=True)
    wanted = set().union(*(symbols(SITE / f"torch/lib/lib{name}.so", "--undefined-only") for name in ASKING))
    wanted |= set(re.findall(r"\b(cu[A-Z]\w+)\(", (SITE / TRITON).read_text()))
    generated = {name for name in wanted if ASKED.match(name) and not THEIRS.match(name)}
    generated -= symbols(own, "--defined-only")
    rest.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(generated)))
    subprocess.run([*compile_, str(rest), "-o", str(library), "-lpthread", "-lrt"], check=True)
    for name in NAMES:
        (folder / name).symlink_to(library)


def environment(folder: Path, gpus: int | None) -> dict[str, str]:
    """Variables of a process that shall see so many pretended GPUs, or the real ones that there are (None)."""
    if gpus is None:
        return {"LD_PRELOAD": str(folder / WAITS)}
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
    # Horovod would put tensors together by a kernel of its own.
    one_by_one = {"HOROVOD_BATCH_D2D_MEMCOPIES": "0"}
    preload = f"{folder / WAITS} {folder / PRETENDED}"
    return {"LD_PRELOAD": preload, "LD_LIBRARY_PATH": path, "PRETENDED_GPUS": str(gpus), **one_by_one}
