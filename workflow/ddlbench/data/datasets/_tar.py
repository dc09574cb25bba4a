"""Where the members of a tar archive lie: `tarfile` reads the headers, data are skipped, nothing is
unpacked.
"""

import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from ddlbench.data.source import SourceError

LONGEST = 1 << 16  # of a header with its long names [bytes]
DIGITS = re.compile(rb"\d{256}")


class Member(NamedTuple):
    """A regular file in an archive: its name without folders (`path` has them), `size` bytes from
    `offset`.
    """

    name: str
    offset: int
    size: int
    path: str


def opened(path: Path) -> BinaryIO:
    """Open the archive, for hopping from header to header. Raises SourceError."""
    try:
        return path.open("rb")
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from None


def members(
    stream: BinaryIO, name: str, start: int = 0, end: int | None = None
) -> Iterator[Member]:
    """Yield the files of the archive that lies between `start` and `end` of the stream (within
    another archive, maybe), in its order; offsets count from the stream's beginning. Folders are
    passed over. `name` is for complaints.

    Nothing is written under a member's name, so that names may be any. Raises SourceError naming
    archive and member if the archive ends early, a header is damaged, or a member is neither a file
    nor a folder.
    """
    end = os.fstat(stream.fileno()).st_size if end is None else end
    stream.seek(start)
    last = "its beginning"
    try:
        archive = _Headers(fileobj=_Stretch(stream, end))  # type: ignore[arg-type]  # it only reads
        while (info := archive.next()) is not None:
            if info.isdir():
                continue
            if not info.isreg() or info.issparse() or info.size < 0:
                raise SourceError(
                    f"{name}: member {info.name!r} is refused: it is neither a file nor a folder"
                )
            yield Member(PurePosixPath(info.name).name, info.offset_data, info.size, info.name)
            last = f"member {info.name!r}"
            archive.members = []  # a million of them would be kept
        # tarfile takes a damaged header for the end.
        stream.seek(archive.offset)
        if archive.offset + tarfile.BLOCKSIZE > end or any(stream.read(tarfile.BLOCKSIZE)):
            raise tarfile.ReadError("the mark of an archive's end is missing")
    except (tarfile.TarError, OSError, ValueError, OverflowError, RecursionError) as error:
        raise SourceError(f"{name}: ends early or is damaged after {last}: {error}") from None


class _Headers(tarfile.TarFile):
    members: list[tarfile.TarInfo]  # tarfile's types do not distinguish these


class _Stretch:
    """The stretch of a stream that an archive lies in. tarfile would read a header as long as it
    claims to be into memory; a header that claims to be longer than LONGEST is refused.
    """

    def __init__(self, stream: BinaryIO, end: int) -> None:
        self.stream, self.end = stream, end
        self.seek, self.tell, self.mode = stream.seek, stream.tell, "rb"

    def read(self, size: int) -> bytes:
        """Read so many bytes, or as many as are left. Raises tarfile.ReadError."""
        if not 0 <= size <= LONGEST:
            raise tarfile.ReadError(f"a header that claims {size} bytes")
        data = self.stream.read(max(0, min(size, self.end - self.stream.tell())))
        # CVE-2024-6232: before 3.11.10, 3.12.6 and 3.13 tarfile takes time by the square of a
        # number's digits.
        if size > tarfile.BLOCKSIZE and DIGITS.search(data):
            raise tarfile.ReadError("a header with a number of more than 255 digits")
        return data
