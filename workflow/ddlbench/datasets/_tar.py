"""Where the members of a tar archive lie, from its headers alone: data are skipped, nothing is unpacked."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from ddlbench.data.source import SourceError

BLOCK = 512  # bytes; an archive's end is marked by blocks of zeros
KINDS = {
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


class Member(NamedTuple):
    """A regular file in an archive: its name without folders, and its `size` bytes from `offset` of the archive."""

    name: str
    offset: int
    size: int


def opened(path: Path) -> BinaryIO:
    """The archive, for hopping from header to header. Raises SourceError."""
    try:
        return path.open("rb")
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from None


def members(stream: BinaryIO, name: str, start: int = 0, end: int | None = None) -> Iterator[Member]:
    """The files of the archive that lies between `start` and `end` of the stream (within another archive, maybe), in
    its order; offsets count from the stream's beginning. Folders are passed over. `name` is for complaints.

    Raises SourceError naming archive and member if it ends early, is damaged, or holds what could lead elsewhere: an
    absolute path, `..`, a link, a device.
    """
    end = os.fstat(stream.fileno()).st_size if end is None else end
    stream.seek(start)
    last = "its beginning"
    try:
        # tarfile would say nothing of a damaged header or a missing end behind the first member.
        archive = tarfile.TarFile(fileobj=stream)
        while (info := archive.next()) is not None:
            _refuse(info, name)
            if info.offset_data + info.size > end:
                raise SourceError(f"{name}: ends early, in or before member {info.name!r}")
            if info.isreg():
                yield Member(PurePosixPath(info.name).name, info.offset_data, info.size)
            last = f"member {info.name!r}"
            archive.members.clear()  # a million of them would be kept
    except (tarfile.TarError, OSError) as error:
        raise SourceError(f"{name}: ends early or is damaged after {last}: {error}") from None
    stream.seek(archive.offset)
    if archive.offset + BLOCK > end or stream.read(BLOCK) != bytes(BLOCK):
        raise SourceError(f"{name}: ends early or is damaged after {last}: the mark of an archive's end is missing")


def _refuse(info: tarfile.TarInfo, name: str) -> None:
    """Raises SourceError if the member is neither a folder nor a regular file at a place below the archive's."""
    if info.name.startswith("/") or ".." in PurePosixPath(info.name).parts:
        raise SourceError(f"{name}: member {info.name!r} is refused: its path leads out of the archive")
    if info.issparse() or info.size < 0 or not (info.isreg() or info.isdir()):
        kind = KINDS.get(info.type, "damaged" if info.isreg() else f"of type {info.type!r}")
        raise SourceError(f"{name}: member {info.name!r} is refused: it is {kind}")
