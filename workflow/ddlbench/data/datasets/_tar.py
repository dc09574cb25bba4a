"""Where the members of a tar archive lie, from its headers alone: data are skipped, nothing is unpacked."""

import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from ddlbench.data.source import SourceError

BLOCK = 512  # bytes; an archive's end is marked by blocks of zeros
PADDING = 1 << 20  # bytes that may follow it: tapes take blocks of up to so many, most archives have 10 KiB
LONGEST = 1 << 20  # of a header, with its long names [bytes]
DIGITS = re.compile(rb"\d{256}")
KINDS = {
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


class Member(NamedTuple):
    """A regular file in an archive: its name without folders (`path` has them), `size` bytes from `offset`."""

    name: str
    offset: int
    size: int
    path: str


def opened(path: Path) -> BinaryIO:
    """The archive, for hopping from header to header. Raises SourceError."""
    try:
        return path.open("rb")
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from None


def members(stream: BinaryIO, name: str, start: int = 0, end: int | None = None) -> Iterator[Member]:
    """The files of the archive that lies between `start` and `end` of the stream (within another archive, maybe), in
    its order; offsets count from the stream's beginning. Folders are passed over. `name` is for complaints.

    Raises SourceError naming archive and member if it ends early, is damaged, has something behind its end, or holds
    what could lead elsewhere: an absolute path, `..`, a link, a device; or a name that is not UTF-8.
    """
    end = os.fstat(stream.fileno()).st_size if end is None else end
    stream.seek(start)
    last = "its beginning"
    try:
        # Header by header: tarfile's own iteration would say nothing of a damaged header behind the first member.
        archive = _Headers(fileobj=_Short(stream))  # type: ignore[arg-type]  # it only reads
        while (info := archive.next()) is not None:
            _refuse(info, name)
            if info.offset_data + info.size > end:
                raise SourceError(f"{name}: ends early, in or before member {info.name!r}")
            if info.isreg():
                yield Member(PurePosixPath(info.name).name, info.offset_data, info.size, info.name)
            last = f"member {info.name!r}"
            archive.members.clear()  # a million of them would be kept
    except (tarfile.TarError, OSError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        raise SourceError(f"{name}: ends early or is damaged after {last}: {error}") from None
    _check_end(stream, name, archive.offset, end, last)


class _Headers(tarfile.TarFile):
    members: list[tarfile.TarInfo]  # which tarfile's types do not tell


class _Short:
    """A stream from which tarfile reads headers only: one that claims to be longer is refused, not read."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.seek, self.tell, self.mode = stream, stream.seek, stream.tell, "rb"

    def read(self, size: int) -> bytes:
        """Raises tarfile.ReadError."""
        if not 0 <= size <= LONGEST:
            raise tarfile.ReadError(f"a header that claims {size} bytes")
        data = self.stream.read(size)
        # tarfile's expressions take time by the square of them; no name of a file has so many.
        if size > BLOCK and DIGITS.search(data):
            raise tarfile.ReadError("a header with a number of more than 255 digits")
        return data


def _check_end(stream: BinaryIO, name: str, at: int, end: int, last: str) -> None:
    """Raises SourceError unless there is the mark of an archive's end, and after it a few zeros only: a hole of zeros
    where a header should be looks like an end."""
    stream.seek(at)
    if at + BLOCK > end or stream.read(BLOCK) != bytes(BLOCK):
        raise SourceError(f"{name}: ends early or is damaged after {last}: the mark of an archive's end is missing")
    rest = end - at - BLOCK
    if rest > PADDING or any(stream.read(rest)):
        raise SourceError(
            f"{name}: is damaged after {last}: zeros as at an archive's end, but {rest} bytes follow: a download "
            "with holes?"
        )


def _refuse(info: tarfile.TarInfo, name: str) -> None:
    """Raises SourceError if the member is neither a folder nor a regular file at a place below the archive's."""
    try:
        info.name.encode()
    except UnicodeEncodeError:
        raise SourceError(f"{name}: member {info.name!r} is refused: its name is not UTF-8") from None
    if info.name.startswith("/") or ".." in PurePosixPath(info.name).parts:
        raise SourceError(f"{name}: member {info.name!r} is refused: its path leads out of the archive")
    if info.issparse() or info.size < 0 or not (info.isreg() or info.isdir()):
        kind = KINDS.get(info.type, "damaged" if info.isreg() else f"of type {info.type!r}")
        raise SourceError(f"{name}: member {info.name!r} is refused: it is {kind}")
