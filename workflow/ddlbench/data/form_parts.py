"""Parts of a form, a shard or a class folder each: what all forms share. Processes write parts side
by side.
"""

import io
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ddlbench.core.files import printable
from ddlbench.data.source import BadImage, Entry, Picture, Source

AHEAD = 32  # pictures that the kernel is asked to load before they are read


class Part(NamedTuple):
    """One part of a split: its path within the form, and the entries that go into it, in order.

    `numbers` are those of the entries, where a form names its samples by number.
    """

    split: str
    name: str
    entries: list[Entry]
    numbers: Sequence[int] = ()


@dataclass(frozen=True)
class Written:
    """The contents of a finished part.

    `skipped` has the reason of each picture that was left out, by class/file name.
    """

    images_per_class: dict[str, int]
    bytes: int
    sha256: dict[str, str]
    skipped: dict[str, str]


@dataclass
class Checked:
    """The result of `check` for a part: images per class, bytes in all, how many were decoded, and
    what is wrong.
    """

    images_per_class: dict[str, int] = field(default_factory=dict)
    size_bytes: int = 0
    decoded: int = 0
    problems: list[str] = field(default_factory=list)

    def count(self, where: str, class_: str, decode: bool, encoded: bytes, *size: int) -> None:
        """Count a picture of this class.

        With `decode`, check that it can be decoded, and has this height and width if they are
        given; `where` is the picture's name in a complaint.
        """
        self.images_per_class[class_] = self.images_per_class.get(class_, 0) + 1
        if decode:
            self.decoded += 1
            if fault := undecodable(encoded, *size):
                self.problems.append(f"{where}: {fault}")


def pictures(
    part: Part, source: Source, on_error: str, skipped: dict[str, str]
) -> Iterator[tuple[Entry, Picture]]:
    """Yield the part's pictures, one at a time.

    Bad ones are put into `skipped`, or raised (`on_error` "stop").
    """
    for number, entry in enumerate(part.entries):
        if number % AHEAD == 0:
            _read_ahead(part.entries[number + AHEAD * (number > 0) : number + 2 * AHEAD])
        try:
            yield entry, source.read(entry)
        except BadImage as error:
            if on_error == "stop":
                raise
            skipped[f"{source.classes[entry.label]}/{entry.filename}"] = str(error)


def _read_ahead(entries: list[Entry]) -> None:
    """Ask the kernel to read these entries from the disk while earlier ones are processed: shuffled
    pictures lie anywhere on it.
    """
    for entry in entries:
        try:
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK)
        except (
            OSError
        ):  # no file: made when it is read; or it cannot be read, which `read` will say
            continue
        try:
            os.posix_fadvise(descriptor, entry.offset, max(0, entry.size), os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)


def file_fault(
    path: Path, finished_ns: int, kind: Callable[[int], bool] = stat.S_ISREG
) -> str | None:
    """Return what is wrong with a file or folder of a form that was finished at `finished_ns`; None
    if nothing is. Only its type (`kind`) and its time of change are looked at.
    """
    try:
        about = path.stat()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not kind(about.st_mode):
        return "is not a regular file" if kind is stat.S_ISREG else "is not a folder"
    if about.st_mtime_ns > finished_ns:
        return (
            "was changed after the form was finished (verify it; if it is complete, touch its"
            " .manifest.json)"
        )
    return None


def undecodable(encoded: bytes, height: int | None = None, width: int | None = None) -> str | None:
    """Decode all pixels of an image file's bytes, and return what is wrong; None if nothing is."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(encoded)) as image:
            image.load()
            size = image.height, image.width
    except Exception as error:  # Pillow raises OSError, SyntaxError, ValueError and its own
        return printable(f"cannot be decoded: {error}")
    if height is not None and size != (height, width):
        return f"is {size[0]} x {size[1]} pixels; its record says {height} x {width}"
    return None
