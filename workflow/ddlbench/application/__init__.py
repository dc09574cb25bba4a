"""The scaling section of an application for compute time, from a study's records: one file per format that it is in.

`_content.py` says what stands in it, as blocks; a member writes blocks as its format has them. `snakemake application`
makes all formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Table:
    """Cells are text. `[R1]` in any text refers to the row of that name in the list of runs.

    A row of one cell is a heading over all columns, of the rows that follow.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Picture:
    caption: str
    path: Path  # without suffix: .png and .pdf are there


Block = Heading | Paragraph | Table | Picture


class FormatMember(Protocol):
    """One file of this room."""

    SUFFIX: str  # of the file, such as `.md`

    def write(self, blocks: Sequence[Block], out: Path) -> None:
        """The section as one file; whole, or not there."""
