"""Compiles the pretended GPU for the PyTorch that is installed, and says what is missing for it."""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
HEADERS = ("cuda_runtime_api.h", "crt/host_defines.h")  # torch's own wheels have only the first
TOOLKIT = "/usr/local/cuda"
# PyTorch's libraries, whose functions of NVIDIA's must all be there.
ASKING = ("torch_cuda", "c10_cuda", "torch_python", "caffe2_nvrtc", "torch_cuda_linalg")
ASKED = re.compile(r"^(?:__cuda|cuda[A-Z]|cu[A-Z]|cublas|cudnn|nccl)")
THEIRS = re.compile(
    r"^(?:cufft|cuFile|cusparse|cusolver|cupti)"
)  # real libraries that need no device to be loaded
TRITON = "triton/backends/nvidia/driver.c"  # compiled where torch.compile asks for it
WAITS, PRETENDED = "libwaits.so", "libpretended.so"
NAMES = ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1")  # those that are opened by name


def folder_of(package: str) -> Path | None:
    """The folder of an installed package, wherever it was installed; None if it is not there."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def includes() -> list[Path]:
    """The folders of CUDA's headers: those of NVIDIA's wheels, wherever they were installed, and of
    a CUDA toolkit.
    """
    nvidia = importlib.util.find_spec("nvidia")
    wheels = nvidia.submodule_search_locations if nvidia is not None else None
    folders = [Path(folder, "cu13/include") for folder in wheels or ()]
    folders += [Path(home, "include") for home in (os.environ.get("CUDA_HOME"), TOOLKIT) if home]
    return [folder for folder in folders if folder.is_dir()]


def lacks(pretended: bool = True) -> str | None:
    """Why what counts waits cannot be made here, nor, if it is asked for, the pretended GPU; None
    if nothing lacks.
    """
    programs = ("gcc", "nm") if pretended else ("gcc",)
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        return f"no {' and no '.join(missing)}: apt-get install gcc binutils"
    torch = folder_of("torch")
    if torch is None or not (torch / "lib/libtorch_cuda.so").exists():
        return "torch is no build for CUDA: make install GPU=1"
    absent = [
        name for name in HEADERS if not any((folder / name).exists() for folder in includes())
    ]
    if absent:
        cure = (
            "pip install nvidia-cuda-crt==13.0.88 (make install GPU=1 does), or set CUDA_HOME to a"
            " CUDA toolkit"
        )
        return f"no header {' and no '.join(absent)} of CUDA 13: {cure}"
    return None


def symbols(library: Path, which: str) -> set[str]:
    """Names of functions that a library defines or needs, without their versions. Raises
    CalledProcessError.
    """
    said = subprocess.run(
        ["nm", "-D", which, str(library)], capture_output=True, text=True, check=True
    ).stdout
    return {line.split()[-1].split("@")[0] for line in said.splitlines()}


def build_waits(folder: Path) -> None:
    """The library that tells what makes a host wait, made in this folder. Raises
    CalledProcessError.
    """
    subprocess.run(
        [*compiler(), str(HERE / "waits.c"), "-o", str(folder / WAITS), "-ldl"], check=True
    )


def build(folder: Path) -> None:
    """That library and the pretended GPU, made in this folder. Raises CalledProcessError."""
    build_waits(folder)
    torch = folder_of("torch")
    assert torch is not None, "lacks() says so"
    own, library, rest = folder / "own.so", folder / PRETENDED, folder / "rest.c"
    compile_ = [*compiler(), str(HERE / "gpu.c")]
    subprocess.run([*compile_, "-o", str(own), "-lpthread", "-lrt"], check=True)
    wanted = set().union(
        *(symbols(torch / f"lib/lib{name}.so", "--undefined-only") for name in ASKING)
    )
    wanted |= set(re.findall(r"\b(cu[A-Z]\w+)\(", (torch.parent / TRITON).read_text()))
    generated = {name for name in wanted if ASKED.match(name) and not THEIRS.match(name)}
    generated -= symbols(own, "--defined-only")
    rest.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(generated)))
    subprocess.run([*compile_, str(rest), "-o", str(library), "-lpthread", "-lrt"], check=True)
    for name in NAMES:
        (folder / name).symlink_to(library)


def compiler() -> list[str]:
    return ["gcc", "-O1", "-w", "-fPIC", "-shared", *(f"-I{folder}" for folder in includes())]


def environment(folder: Path, gpus: int | None) -> dict[str, str]:
    """Variables of a process that shall see so many pretended GPUs, or the real ones that there are
    (None).
    """
    if gpus is None:
        return {"LD_PRELOAD": str(folder / WAITS)}
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
    # Horovod would put tensors together by a kernel of its own.
    one_by_one = {"HOROVOD_BATCH_D2D_MEMCOPIES": "0"}
    preload = f"{folder / WAITS} {folder / PRETENDED}"
    return {
        "LD_PRELOAD": preload,
        "LD_LIBRARY_PATH": path,
        "PRETENDED_GPUS": str(gpus),
        **one_by_one,
    }
