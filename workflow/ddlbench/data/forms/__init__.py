"""How a data set lies on disk: one file per form; its name is the form's name in a loader's FORMS.

`Form` is what such a file offers. A form is made of parts (a shard, a class folder), so that
preparing can be shared out to processes. To add a form, write one more file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ddlbench.data.form_parts import Checked, Part, Written
from ddlbench.data.manifest import Manifest
from ddlbench.data.source import Entry, Source

if TYPE_CHECKING:
    import numpy as np


class Samples(Protocol):
    """The pictures of a split, to be read in any order, and by several threads or processes at
    once.

    They are numbered by class and name, in every form alike: loaders that draw numbers train the
    same in each.
    """

    @property
    def labels(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the labels, from 0."""

    def __len__(self) -> int:
        """Return the number of pictures."""

    def read(self, index: int) -> bytes:
        """Return an image file's bytes. Raises OSError."""

    def name(self, index: int) -> str:
        """Return where a picture lies, for messages."""


class Form(Protocol):
    """The contract of a form. `folder` is where the form's files lie (of a tree in place: the
    tree), or are made.
    """

    PARTS: str
    """What the parts are called, for people: "shards"."""
    FORMAT: int
    """The version of what is written; a form of another version is refused."""
    LABEL_OFFSET: int
    """What the form adds to a label that counts from 0."""
    IN_PLACE: bool
    """Whether a source that is a tree of class folders is used where it lies, and nothing is written."""

    def parts(
        self, split: str, entries: list[Entry], classes: tuple[str, ...], seed: int
    ) -> list[Part]:
        """Return all parts of a split, with what goes into each, in order. Pure."""

    def needs(
        self, images: dict[str, int], classes: int, picture_bytes: float
    ) -> tuple[float, int]:
        """Estimate (bytes, files and folders) of a complete form of so many images per split, for
        the plan. Pure.
        """

    def write(self, part: Part, source: Source, folder: Path, on_error: str) -> Written:
        """Write one part into a folder that is new, in a process of the crew.

        Raises BadImage (`on_error` "stop"; "skip" leaves bad pictures out), SourceError, OSError.
        """

    def index(self, folder: Path, manifest: Manifest) -> None:
        """Write the index that readers of a complete form need beside the manifest, if it is not
        there.

        `prepare` calls it, and each run. Raises OSError, ValueError if an existing index is newer
        than the form.
        """

    def check_index(self, folder: Path, manifest: Manifest) -> list[str]:
        """Return what is wrong with what `index` left, one line each.

        For `verify`. Raises OSError.
        """

    def samples(self, folder: Path, split: str) -> Samples | None:
        """Return the pictures of a split, given where the manifest lies; None if only a reader of
        the form itself finds them. Raises OSError, ValueError.
        """

    def part_names(self, folder: Path, split: str) -> set[str]:
        """Return the parts of a split that lie in the folder, under the manifest's names (keys of
        `sha256`).
        """

    def check(
        self,
        folder: Path,
        name: str,
        digest: str,
        classes: tuple[str, ...],
        every: int,
        skipped: set[str],
    ) -> Checked:
        """Read a complete part and compare it with its SHA-256; decode one in `every` pictures. For
        `verify`.

        Raises OSError if it cannot be read.
        """

    def glance(self, folder: Path, manifest: Manifest, finished_ns: int) -> list[str]:
        """Return what is wrong with the form as far as sizes and times of change show it, one line
        each. Nothing may be newer than the form, which was finished at `finished_ns`. For the start
        of a run.
        """
