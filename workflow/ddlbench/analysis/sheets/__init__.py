"""Tables that the rest can do without: one file per table, whose name is the table's.

`tables.py` writes and documents them beside the tables that everything rests on, `summary.py` keeps their rows of a
record, `collect.py` makes the rest of all runs. All three find them by name: whoever deletes a file deletes its table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ddlbench.core import registry
from ddlbench.core.columns import Column, Why

if TYPE_CHECKING:
    import pandas as pd

    from ddlbench.analysis.record import Record

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Terms:
    """What a machine and the configuration say of costs: None where nobody knows, of `checkpoint_minutes`: never."""

    node_hours_between: float | None = None  # mean time between interruptions of one node [h]
    node_hour_price: float | None = None  # of a whole node
    currency: str | None = None
    checkpoint_minutes: float | None = None


@dataclass(frozen=True)
class Sheet:
    """A table: what its rows are, its columns, whether it is also written as csv, and where its rows come from.

    `place` is its place in docs/columns.md: the tables of `tables.py` have 10, 20, 30, ...
    """

    means: str
    columns: tuple[Column, ...]
    csv: bool = True
    place: int = 0
    # Rows of one successful record, or why there are none though there should be. Pure; the summary keeps them.
    of_record: Callable[[Record], Rows | Why] | None = None
    # All rows, from those of the records and from table `runs`.
    of_study: Callable[[Rows, pd.DataFrame, Terms], Rows] | None = None
    # Rows of one job that does not train, by its record and its spec. Another rule than `collect` writes the table.
    of_job: Callable[[Path, Any], Rows] | None = None


class SheetMember(Protocol):
    """One file of this room."""

    SHEET: Sheet


def every() -> dict[str, Sheet]:
    """The tables of this room by name, by their place."""
    sheets = {name.replace("-", "_"): registry.member("sheets", name).SHEET for name in registry.members("sheets")}
    return dict(sorted(sheets.items(), key=lambda item: int(item[1].place)))
