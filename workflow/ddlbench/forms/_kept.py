"""Lists that a form keeps beside its manifest, so that no loader has to look for its pictures.

They are hidden, belong to one manifest (its digest is in their names), and are mapped: all processes of a node share
their pages.
"""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddlbench.data.manifest import KEPT, Manifest
from ddlbench.files import aside


def path(folder: Path, manifest: Manifest, split: str, suffix: str) -> Path:
    """Where the list of a split lies."""
    return folder / f"{KEPT}.{manifest.digest()}.{split}.{suffix}"


def leave(folder: Path, manifest: Manifest, suffix: str, made: Callable[[str], bytes]) -> None:
    """Write the lists of all splits that are not there. Raises OSError, and what `made` raises."""
    for split in manifest.splits:
        place = path(folder, manifest, split, suffix)
        if place.exists():
            continue
        data = made(split)
        with aside(place, place.with_suffix(f".{socket.gethostname()}-{os.getpid()}")) as hidden:
            hidden.write_bytes(data)
        for other in folder.glob(f"{KEPT}.*.{split}.*"):  # of another manifest, or begun elsewhere: not needed any more
            if other != place:
                other.unlink(missing_ok=True)


def differing(folder: Path, manifest: Manifest, suffix: str, made: Callable[[str], bytes]) -> list[str]:
    """Lists that are there and say something else than `made` does, one line each. Raises what `made` raises."""
    places = {split: path(folder, manifest, split, suffix) for split in manifest.splits}
    return [
        f"{place}: does not list what the form holds; remove it: it is made again"
        for split, place in places.items()
        if place.exists() and place.read_bytes() != made(split)
    ]


def mapped(place: Path) -> Any:
    """A file's bytes, uint8, which are read when they are looked at; None if there are none."""
    import numpy as np

    try:
        with place.open("rb", buffering=0) as file:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except (OSError, ValueError):  # it is not there; an empty file cannot be mapped
        return None
