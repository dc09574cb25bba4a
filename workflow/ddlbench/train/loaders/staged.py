"""staged: loader `native` on a copy of the form in the memory of each node, made before training.

One rank of a node copies to /dev/shm, all of them read it there: while they train, the shared file system is not asked.
The copy goes when the run's ranks have ended, however they did (`core/beats.py`).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil

from ddlbench.core import beats, registry
from ddlbench.core.files import write_json
from ddlbench.data.manifest import NAME, Manifest
from ddlbench.train.loaders import native
from ddlbench.train.loaders._pictures import opened

if TYPE_CHECKING:
    from ddlbench.core.spec import RunSpec
    from ddlbench.train.loaders import PictureSet

FORMS, FAMILY, LEARNS, DEVICE = native.FORMS, native.FAMILY, native.LEARNS, native.DEVICE
PACKAGE, INSTALL, DISTRIBUTION = native.PACKAGE, native.INSTALL, native.DISTRIBUTION
IN_MEMORY = ("form",)  # what each node keeps there, for the plan
TOOK = "took.json"  # memory [bytes] and time [s] of a copy; written last, so one that has it is whole
THREADS = 16  # that copy: a parallel file system answers many at once


class Loader(native.Loader):
    """One rank's share of a split. `staged` is what the copy took."""

    def pictures(self, source: PictureSet, spec: RunSpec) -> Any:
        """Pictures of the copy. Messages name the original, which is still there afterwards."""
        copy = _of_node(source)
        self.staged: list[float] = json.loads((copy / TOOK).read_text(encoding="utf-8"))
        there, here = opened(source, spec), opened(source._replace(folder=copy), spec)
        samples: Any = SimpleNamespace(labels=here.labels, read=here.read, name=there.name)
        return native.Batched(samples, source.split == "train", spec)


def _of_node(source: PictureSet) -> Path:
    """The node's copy, made by the first rank that comes here; the others wait for it. Raises RuntimeError, OSError."""
    folder, memory = source.folder, source.memory
    assert folder is not None
    if memory is None or memory.parent != beats.MEMORY:
        raise RuntimeError(f"loader staged has no place for its copy: {beats.MEMORY} cannot be written; take native")
    turn = os.open(memory, os.O_RDONLY)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        copy = beats.own_folder(memory)
        copy.mkdir(exist_ok=True)
        beats.tidy_others()  # what killed ranks left would take the room
        for took in memory.glob(f"*/{TOOK}"):
            with suppress(OSError):
                copy.rmdir()  # that of another rank is whole
            return took.parent
        _copy(folder, copy)
        return copy
    finally:
        os.close(turn)


def _copy(folder: Path, copy: Path) -> None:
    """Copy the parts that the manifest names. Raises RuntimeError where they have no room, OSError, ValueError."""
    began, manifest = time.monotonic(), Manifest.read(folder)
    form, data = registry.member("forms", manifest.form), manifest.data(folder)
    images = {name: split.images for name, split in manifest.splits.items()}
    picture_bytes = sum(split.bytes for split in manifest.splits.values()) / max(1, sum(images.values()))
    needs, _ = form.needs(images, len(manifest.classes), picture_bytes)
    free = min(shutil.disk_usage(copy).free, psutil.virtual_memory().available)
    if needs > free:
        lacks = f"{needs / 1e9:.3g} GB of memory for {folder}, and {beats.MEMORY} has room for {free / 1e9:.3g} GB"
        raise RuntimeError(f"loader staged needs {lacks}: take loader native, or nodes with more")

    def part(name: str) -> None:
        if (data / name).is_dir():
            shutil.copytree(data / name, copy / name, copy_function=shutil.copyfile)
            return
        for file in (name, f"{name}.idx"):
            if (data / file).exists():  # `index` finds what is missing
                shutil.copyfile(data / file, copy / file)

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(part, [name for split in manifest.splits.values() for name in split.sha256]))
    write_json(copy / NAME, json.loads((folder / NAME).read_text(encoding="utf-8")) | {"root": None})
    form.index(copy, Manifest.read(copy))
    taken = sum(file.lstat().st_blocks for file in copy.rglob("*")) * 512
    write_json(copy / TOOK, [taken, time.monotonic() - began])
