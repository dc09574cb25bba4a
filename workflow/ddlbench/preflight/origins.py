"""Does what ranks import come from their own environment, and is the NCCL in memory the one that was installed?

A module's or a user's variable can put packages of another Python first. The wheels of NCCL for CUDA 12 and 13 write
the same file: the one that was installed last is used.
"""

import site
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("torch", "numpy", "horovod", "nvidia")


def elsewhere(packages: Sequence[str] = PACKAGES) -> list[str]:
    """What is imported from outside of this Python's own folders, each with where it lies."""
    places = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    own = [Path(place).resolve() for place in places]
    return [
        f"{package} would be imported from {found}, which is not this environment's {own[0]}"
        for package in packages
        for found in _folders(package)
        if not any(Path(found).resolve().is_relative_to(place) for place in own)
    ]


def _folders(package: str) -> list[str]:
    """Where a package lies, without importing it: several folders of a package in parts, none if it is not there."""
    spec = find_spec(package)
    return [*(spec.submodule_search_locations or [])] if spec else []


def nccl(cuda: str, maps: Path = Path("/proc/self/maps")) -> str | None:
    """What is wrong with the NCCL that this process has mapped, for torch built with this CUDA; None if nothing is."""
    name = f"nvidia-nccl-cu{cuda.partition('.')[0]}"
    lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    mapped = sorted({line.split(maxsplit=5)[5] for line in lines if "/libnccl.so" in line})
    installed = dict(_libraries(name))
    if not mapped or not installed:  # torch has NCCL within itself, or it is no wheel's
        return None
    others = [path for path in mapped if Path(path).resolve() not in installed]
    if others:
        return f"NCCL in use is {', '.join(others)}, not that of package {name}"
    for path, size in installed.items():
        if size is not None and path.stat().st_size != size:
            cure = f"pip install --force-reinstall --no-deps {name}=={distribution(name).version}"
            return f"{path} is not the file that {name} brought: another package has written over it; {cure}"
    return None


def _libraries(name: str) -> Iterator[tuple[Path, int | None]]:
    """The NCCL of an installed package: its files, and how large pip left them."""
    try:
        files = distribution(name).files or []
    except PackageNotFoundError:
        return
    for file in files:
        path = Path(str(file.locate())).resolve()
        if file.name.startswith("libnccl.so") and path.exists():
            yield path, file.size
