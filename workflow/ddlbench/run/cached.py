"""How much of the data lies in this node's memory before a run: the state of the file cache, which a record says.

A run that reads from memory and one that reads from disks are not alike. Nothing is read to find out: the kernel is
asked which pages of a sample of files it holds.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ddlbench.core.pages import in_memory
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
            if os.access(file, os.W_OK):
                with file.open("rb") as opened:
                    known, pages = in_memory(opened.fileno(), os.fstat(opened.fileno()).st_size)
                here, total = here + known, total + pages
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
