"""Lists that a form keeps beside its manifest, so that no loader has to look for its pictures.

They are hidden, belong to one manifest (its digest is in their names), and are mapped: processes
share their pages.
"""

import mmap
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.core.files import aside, opened, read_bytes
from ddlbench.data.form_parts import file_fault
from ddlbench.data.manifest import KEPT, Manifest, finished_ns


def path(folder: Path, manifest: Manifest, split: str, suffix: str) -> Path:
    """Return the path of the list of a split."""
    return folder / f"{KEPT}.{manifest.digest()}.{split}.{suffix}"


@dataclass(frozen=True)
class KeptList:
    """A list of pictures per split.

    It has the suffix of its name, and the function that makes it from folder, manifest and split;
    that raises OSError, or ValueError where the form does not hold what the manifest says.
    """

    suffix: str
    make: Callable[[Path, Manifest, str], bytes]

    def index(self, folder: Path, manifest: Manifest) -> None:
        """Write the lists of all splits that are not there, with the time of the form.

        Raises ValueError if one that is there is newer than the form, OSError, and what `make`
        raises.
        """
        finished = finished_ns(folder)
        for split in manifest.splits:
            place = path(folder, manifest, split, self.suffix)
            if not place.exists():
                _write(place, self.make(folder, manifest, split), finished)
                _remove_others(
                    folder, place, f"{KEPT}.*.{split}.*"
                )  # of another manifest, or begun elsewhere
            elif finished is not None and (what := file_fault(place, finished)):
                raise ValueError(f"{place}: {what}; or delete it: it will be rebuilt")

    def check_index(self, folder: Path, manifest: Manifest) -> list[str]:
        """Return the lists that differ from what the form holds, one line each. Raises OSError."""
        places = {split: path(folder, manifest, split, self.suffix) for split in manifest.splits}
        with suppress(ValueError):  # `check` reports this for the parts
            return [
                f"{place}: does not list what the form holds; delete it: it will be rebuilt"
                for split, place in places.items()
                if place.exists() and read_bytes(place) != self.make(folder, manifest, split)
            ]
        return []


def _remove_others(folder: Path, place: Path, pattern: str) -> None:
    for other in folder.glob(pattern):
        if other != place:
            other.unlink(missing_ok=True)


def _write(place: Path, data: bytes, time_ns: int | None) -> None:
    with aside(
        place, place.with_suffix(f"{place.suffix}.{socket.gethostname()}-{os.getpid()}")
    ) as hidden:
        hidden.write_bytes(data)
        if time_ns is not None:
            os.utime(hidden, ns=(time_ns, time_ns))


def mapped(place: Path) -> Any:
    """Map a file's bytes as uint8, which are read when they are looked at; return None if there are
    none.
    """
    import numpy as np

    try:
        with opened(place) as file:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except (OSError, ValueError):  # it is not there; an empty file cannot be mapped
        return None
