"""The scaling section of an application for compute time, from a study's records: one file per format that it is in.

`_content.py` says what stands in it, as blocks, and makes all formats; a member writes blocks as its format has them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ddlbench.core.files import printable


class _Texts:
    """Blocks hold texts of one line, without characters that no format has: studies may say anything."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            object.__setattr__(self, name, _printable(value))


def _printable(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_printable, value))
    return printable(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Heading(_Texts):
    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph(_Texts):
    text: str


@dataclass(frozen=True)
class Table(_Texts):
    """Cells are text. `[R1]` in any text refers to the row of that name in the list of runs.

    A row of one cell is a heading over all columns, of the rows that follow.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Image(_Texts):
    caption: str
    path: Path  # without suffix: .png and .pdf are there


Block = Heading | Paragraph | Table | Image


def shares(table: Table, line: int) -> list[float]:
    """The share of a line of `line` characters of each column; the longest give way first, the header's words last."""
    count = len(table.header)
    rows = [table.header, *(row for row in table.rows if len(row) == count)]
    longest = [max(len(row[at]) for row in rows) + 2 for at in range(count)]
    least = [max(map(len, name.split()), default=0) + 2 for name in table.header]
    while sum(longest) > line:
        room = [length - words for length, words in zip(longest, least, strict=True)]
        at = max(range(count), key=lambda column: (room[column] > 0, longest[column]))
        longest[at] -= 1
    return [length / line for length in longest]


class FormatMember(Protocol):
    """One file of this room."""

    SUFFIX: str  # of the file, such as `.md`

    def write(self, blocks: Sequence[Block], out: Path) -> None:
        """The section as one file; whole, or not there."""
