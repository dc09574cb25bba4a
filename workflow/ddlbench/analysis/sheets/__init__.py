"""Tables: one file per table, whose name is the table's.

`tables.py` writes and documents them, `summary.py` keeps rows of a record, `collect.py` asks each
for the rest. All three find them by name: whoever deletes a file deletes its table. `runs`,
`epochs` and what `rules/page.smk` names are read by much else, which can do without the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ddlbench.core import registry
from ddlbench.core.columns import Column, Why

if TYPE_CHECKING:
    import pandas as pd

    from ddlbench.analysis.price import Tariff
    from ddlbench.analysis.record import Record

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Terms:
    """The terms of costs in a machine's file and the configuration: None where nobody knows. A
    checkpoint is written every so many minutes and every so many epochs; None means not by that.
    """

    node_hours_between: float | None = None  # mean time between interruptions of one node [h]
    node_hour_price: float | None = None  # of a whole node
    currency: str | None = None
    checkpoint_minutes: float | None = None
    checkpoint_epochs: int | None = None


@dataclass(frozen=True)
class Planned:
    """What the plan says of the runs whose records are read.

    `settings` are digests of what each run uses (`core/digest.py`), without which a record of any
    settings is taken; `order` are the runs in their order; `scaling` is what blocks say of them
    (`plan/runs.py`); `non_training` are folders of jobs that do not train.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    order: Sequence[str] = ()
    scaling: Mapping[str, str] = field(default_factory=dict)
    non_training: Sequence[Path] = ()


@dataclass(frozen=True)
class Costs:
    """What the machine and the configuration say: prices, costs of interruptions, and the peaks of
    a worker (`peak_tflops_per_worker`, by precision).
    """

    tariff: Tariff | None = None  # None: prices are not requested
    terms: Terms = Terms()
    peaks: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Gathered:
    """What tables of all runs are made from: the folders that were read, what was refused of them,
    what was planned, what things cost; and table `runs`, when its own rows are whole.
    """

    folders: Sequence[Path]
    refused: Rows
    planned: Planned
    costs: Costs
    runs: Callable[[], pd.DataFrame]


@dataclass(frozen=True)
class Sheet:
    """A table: what its rows are, its columns, whether it is also written as csv, and where its
    rows come from.

    `place` is its place among the others, where they are made and in docs/columns.md.
    """

    means: str
    columns: tuple[Column, ...]
    csv: bool = True
    place: int = 0
    of_settings: bool = False  # whether the columns of a run's settings come first
    # Whether the summary holds its rows as columns: they are written while records are read, as
    # they may not fit in memory.
    long: bool = False
    # Rows of one successful record, or why there are none though there should be. Pure; the summary
    # keeps them.
    of_record: Callable[[Record], Rows | Why] | None = None
    # Rows of one record, from its summary (`summary.make`); None: those that the summary has by the
    # table's name.
    of_summary: Callable[[Mapping[str, Any], Costs], Rows] | None = None
    # All rows, from those of the records. Tables are asked by their place.
    of_study: Callable[[Rows, Gathered], Rows] | None = None
    # Rows of one job that does not train, by its record and its spec. Another rule than `collect`
    # writes the table.
    of_job: Callable[[Path, Any], Rows] | None = None


class SheetMember(Protocol):
    """The contract of a file of this room."""

    SHEET: Sheet


def every() -> dict[str, Sheet]:
    """Return the tables by name, by their place."""
    sheets = {
        name.replace("-", "_"): registry.member("sheets", name).SHEET
        for name in registry.members("sheets")
    }
    return dict(sorted(sheets.items(), key=lambda item: int(item[1].place)))
