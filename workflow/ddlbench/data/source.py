"""Where pictures come from: what a file in `datasets/` opens, and what the forms read.

A source knows all its pictures by name before it reads any (an `Entry` each: cheap, no image
bytes), so that a form can shuffle, deal them to shards, and read each where it lies: in a file, in
a stretch of an archive or of an array.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ddlbench.core.files import printable


class DataError(RuntimeError):
    """An error in data that a person must know: one line, safe to print."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class SourceError(DataError):
    """The error that a source cannot be used as a whole: missing, wrong digest, ends early.

    The line names the file.
    """


class BadImage(DataError):
    """The error that one picture cannot be used; the line names it.

    `data.on_error` of the config decides what follows.
    """


class Entry(NamedTuple):
    """One picture: `label` counts from 0; it is `size` bytes from `offset` of `path` (a file, an
    archive, an array).

    A size below 0 stands for the complete file: to read the sizes of a million files takes longer
    than to read their names.
    """

    filename: str
    label: int
    path: str
    offset: int
    size: int


class Picture(NamedTuple):
    """A picture as it goes into a form: an RGB JPEG or PNG file's bytes and its height and width
    [pixels].
    """

    encoded: bytes
    height: int
    width: int


class Source(Protocol):
    """An opened data set. It is pickled for the processes that prepare: keep no open files or large
    arrays in it.
    """

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes, sorted; a label is a name's position."""

    @property
    def tree(self) -> Path | None:
        """Return a tree of class folders that is used as the raw form where it lies, never copied;
        None for all others.
        """

    @property
    def described(self) -> dict[str, Any]:
        """Return, for the manifest, where it came from (path or address) and the digests that were
        checked.
        """

    def entries(self, split: str) -> list[Entry]:
        """List all pictures of `train` or `val`, always in the same order. Raises SourceError."""

    def read(self, entry: Entry) -> Picture:
        """Return one picture; whatever is not an RGB JPEG or PNG is converted to one.

        Raises BadImage.
        """


@dataclass(frozen=True)
class Place:
    """The place where a source looks: `given` is the value of data.sources.<data set>, `cache` the
    folder for downloads.
    """

    given: str | None
    cache: Path
