"""Where, with what and how a run was made: what its record says of its origin. `run/training.py`
asks.
"""

import json
import os
import platform
import shlex
import socket
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ddlbench import __version__
from ddlbench.analysis.recorded import variables
from ddlbench.core import registry, site_torch
from ddlbench.core.files import sha256
from ddlbench.core.notes import topology
from ddlbench.core.pages import in_memory
from ddlbench.core.spec import RunSpec
from ddlbench.data.manifest import NAME
from ddlbench.settings.machine import IMAGE
from ddlbench.slurm import step
from ddlbench.train.assignment import relevant_variables

NVIDIA = Path("/proc/driver/nvidia")  # what the driver reports about itself and its GPUs

# Packages whose versions every record names; its framework and its loader add their own.
PACKAGES = ("torch", "torchvision", "timm", "mlperf-logging")


MOST = 64  # files of the data that are looked at, to tell how much of them is in this node's memory
T = TypeVar("T")


def facts(
    spec: RunSpec,
    argv: list[str],
    preflight: dict[str, Any] | None = None,
    data: Path | None = None,
) -> dict[str, Any]:
    """Return where, with what and how the run was made, and from which data.

    `preflight` is what `cite` gives for the last one; `data` is the folder of the form that is
    read.
    """
    versions: dict[str, str | None] = {"ddlbench": __version__}
    members = (
        registry.member("frameworks", spec.versioned),
        registry.member("loaders", spec.loader),
    )
    for package in filter(None, (*PACKAGES, *(member.DISTRIBUTION for member in members))):
        versions[package] = registry.release(package)
    return {
        "command": shlex.join(argv),
        "environment": relevant_variables(os.environ | variables(shlex.join(argv))),
        "container": _image(argv),
        "host": socket.gethostname(),
        **topology(),  # of the node that watches; each rank leaves its own (`ddlbench_ranks`)
        "cpu": cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "slurm_job_id": step.job(),
        "gpu": _text_after(NVIDIA.glob("gpus/*/information"), "Model:"),
        "driver": _text_after([NVIDIA / "version"], "NVRM version:"),
        "data_sha256": _digest(data),
        "data_cached_share": cached_share(data),
        "validation": _validation(data),
        "versions": versions,
        "torch_from": site_torch.origin(),
        "commit": _git("rev-parse", "HEAD"),
        "preflight": preflight,
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _image(argv: list[str]) -> str | None:
    """Return the SHA-256 of the container's image that the command names; None without one."""
    image = next(filter(None, map(IMAGE.fullmatch, argv)), None)
    return (image["digest"] or sha256(Path(image["file"]))) if image else None


def cite(file: Path) -> dict[str, Any]:
    """Return a record's reference to the preflight that was made before it."""
    preflight = json.loads(file.read_text(encoding="utf-8"))
    warnings = [problem["text"] for problem in preflight["problems"]]
    return {
        "path": str(file),
        "sha256": sha256(file),
        "time": preflight["time"],
        "warnings": warnings,
    }


def _digest(data: Path | None) -> str | None:
    """Return the SHA-256 of the data's manifest, which holds the SHA-256 of each part of the data;
    None where nothing is read.
    """
    try:
        return sha256(data / NAME) if data else None
    except OSError:
        return None


def _validation(data: Path | None) -> str | None:
    """Return where the data's pictures for validation are from: their own, or cut from those for
    training; None where nothing is read.
    """
    with suppress(OSError, ValueError, AttributeError, KeyError):
        if data is not None:
            return str(
                json.loads((data / NAME).read_text(encoding="utf-8"))["source"].get(
                    "validation", "its own"
                )
            )
    return None


def _text_after(files: Iterable[Path], words: str) -> str | None:
    """Return the rest of the line that begins with these words, in the first file that has one;
    None without one.
    """
    for file in sorted(files):
        with suppress(OSError):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                if line.startswith(words):
                    return " ".join(line.removeprefix(words).split())
    return None


def cpu() -> str:
    """Return the name of this node's CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        "unknown",
    )


def _git(*arguments: str) -> str | None:
    here = Path(__file__).resolve().parent
    try:
        done = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def cached_share(data: Path | None, most: int = MOST) -> float | None:
    """Return the share of the data's pages that are in memory, from a sample of its files; None
    where it is unknown. `data` is the folder of a form. Nothing is read for this: the kernel knows
    it, and answers only the owner of a file, users who may write it, and root.
    """
    if data is None:
        return None
    here = total = 0
    with suppress(
        OSError, ValueError, AttributeError, TypeError
    ):  # a failure here does not keep a run from starting
        root = json.loads((data / NAME).read_text(encoding="utf-8")).get("root")
        for file in _sample(Path(root or data), most):
            if os.access(file, os.W_OK):
                with file.open("rb") as opened:
                    cached, pages = in_memory(opened.fileno(), os.fstat(opened.fileno()).st_size)
                here, total = here + cached, total + pages
    return here / total if total else None


def _sample(folder: Path, most: int) -> Iterator[Path]:
    """Yield at most so many files from all over the folder, the same each time."""
    with os.scandir(folder) as entries:
        paths = sorted(
            (entry.path, entry.is_dir()) for entry in entries if not entry.name.startswith(".")
        )
    files = [
        Path(path)
        for path, is_folder in paths
        if not is_folder and not path.endswith((".json", ".idx"))
    ]
    folders = [Path(path) for path, is_folder in paths if is_folder]
    yield from _evenly_spaced(files, most)
    for inner in _evenly_spaced(folders, most):
        yield from _sample(inner, max(1, most // min(len(folders), most)))


def _evenly_spaced(items: Sequence[T], most: int) -> Sequence[T]:
    """Return at most so many of them, evenly from first to last."""
    return items if len(items) <= most else [items[i * len(items) // most] for i in range(most)]
