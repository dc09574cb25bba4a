"""Lists that a form keeps beside its manifest, so that no loader has to look for its pictures.

They are hidden, belong to one manifest (its digest is in their names), and are mapped: processes share their pages.
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
from ddlbench.data.manifest import KEPT, Manifest, sha256


def path(folder: Path, manifest: Manifest, split: str, suffix: str) -> Path:
    """Where the list of a split lies."""
    return folder / f"{KEPT}.{manifest.digest()}.{split}.{suffix}"


@dataclass(frozen=True)
class KeptList:
    """One list per split: the end of its name, and what makes it of folder, manifest and split (it raises OSError, or
    ValueError where the form does not hold what the manifest says)."""

    suffix: str
    make: Callable[[Path, Manifest, str], bytes]

    def index(self, folder: Path, manifest: Manifest) -> None:
        """Write the lists of all splits that are not there, and their digests beside them, as `sha256sum` does; compare
        those that are there with their digest. Lists of earlier versions have none: they are made again and compared.

        Raises ValueError if one is not what was written, OSError, and what `make` raises.
        """
        sums = folder / f"{KEPT}.{manifest.digest()}.sha256"
        digests = _read(sums)
        before = dict(digests)
        for split in manifest.splits:
            place = path(folder, manifest, split, self.suffix)
            if place.exists():
                if place.name not in digests and os.access(folder, os.W_OK):
                    digests[place.name] = sha256(self.make(folder, manifest, split))
                if digests.get(place.name) not in (None, _digest(place)):
                    raise ValueError(f"{place}: is not the list that ddlbench made; remove it: it is made again")
                continue
            data = self.make(folder, manifest, split)
            _write(place, data)
            digests[place.name] = sha256(data)
            _remove_others(folder, place, f"{KEPT}.*.{split}.*")  # of another manifest, or begun elsewhere
        if digests != before:
            _write(sums, "".join(f"{value}  {name}\n" for name, value in sorted(digests.items())).encode())
            _remove_others(folder, sums, f"{KEPT}.*.sha256*")

    def check_index(self, folder: Path, manifest: Manifest) -> list[str]:
        """Lists that are there and say something else than is in the form, one line each. Raises OSError."""
        places = {split: path(folder, manifest, split, self.suffix) for split in manifest.splits}
        with suppress(ValueError):  # `check` says that of the parts
            return [
                f"{place}: does not list what the form holds; remove it: it is made again"
                for split, place in places.items()
                if place.exists() and read_bytes(place) != self.make(folder, manifest, split)
            ]
        return []


def _remove_others(folder: Path, place: Path, pattern: str) -> None:
    for other in folder.glob(pattern):
        if other != place:
            other.unlink(missing_ok=True)


def _read(sums: Path) -> dict[str, str]:
    """Digests by file name; none if they cannot be read."""
    with suppress(OSError, ValueError):
        return {name: value for value, name in (line.split("  ") for line in read_bytes(sums).decode().splitlines())}
    return {}


def _digest(place: Path) -> str:
    """A list's digest; nothing if it cannot be read."""
    with suppress(OSError):
        return sha256(read_bytes(place))
    return ""


def _write(place: Path, data: bytes) -> None:
    with aside(place, place.with_suffix(f"{place.suffix}.{socket.gethostname()}-{os.getpid()}")) as hidden:
        hidden.write_bytes(data)


def mapped(place: Path) -> Any:
    """A file's bytes, uint8, which are read when they are looked at; None if there are none."""
    import numpy as np

    try:
        with opened(place) as file:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except (OSError, ValueError):  # it is not there; an empty file cannot be mapped
        return None
