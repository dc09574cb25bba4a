"""How much of the data lies in this node's memory before a run: the state of the file cache, which a record says.

A run that reads from memory and one that reads from disks are not alike. Nothing is read to find out: the kernel is
asked which pages of a sample of files it holds. Sources: Linux, mincore(2); mmap(2).
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ddlbench.data.manifest import NAME

MOST = 64  # files that are looked at
T = TypeVar("T")


def cached_share(data: Path | None, most: int = MOST) -> float | None:
    """Pages of the data that are in memory, by all pages of a sample of its files; None where nobody can tell.

    `data` is the folder of a form. Linux tells only the owner of a file, who may write it, or root.
    """
    if data is None:
        return None
    here = total = 0
    with suppress(OSError, ValueError, AttributeError, TypeError):  # no run is kept from starting by this
        root = json.loads((data / NAME).read_text(encoding="utf-8")).get("root")
        for file in _sample(Path(root or data), most):
            if os.access(file, os.W_OK) and (pages := _pages(file)):
                here, total = here + sum(pages), total + len(pages)
    return here / total if total else None


def _sample(folder: Path, most: int) -> Iterator[Path]:
    """At most so many files from all over the folder, the same each time."""
    with os.scandir(folder) as entries:
        known = sorted((entry.path, entry.is_dir()) for entry in entries if not entry.name.startswith("."))
    files = [Path(path) for path, is_folder in known if not is_folder and not path.endswith((".json", ".idx"))]
    folders = [Path(path) for path, is_folder in known if is_folder]
    yield from _spread(files, most)
    for inner in _spread(folders, most):
        yield from _sample(inner, max(1, most // min(len(folders), most)))


def _spread(things: Sequence[T], most: int) -> Sequence[T]:
    """At most so many of them, evenly from first to last."""
    return things if len(things) <= most else [things[i * len(things) // most] for i in range(most)]


def _pages(file: Path) -> list[bool]:
    """Of each page of a file, whether it is in memory. Raises OSError; AttributeError where there is no mincore."""
    with file.open("rb") as opened:
        if not os.fstat(opened.fileno()).st_size:
            return []
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
            there = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
            start = ctypes.c_char.from_buffer(mapped)
            address = ctypes.c_void_p(ctypes.addressof(start))
            code = ctypes.CDLL(None, use_errno=True).mincore(address, ctypes.c_size_t(len(mapped)), there)
            del start  # a mapping that is looked at cannot be closed
            if code:
                raise OSError(ctypes.get_errno(), "mincore", str(file))
            return [bool(page & 1) for page in there]
