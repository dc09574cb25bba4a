"""What a column of the tables is. Each column is declared once, in the file that measures or
computes it.

`train/measure.py` declares what ranks measure, the modules of `analysis/` what is computed from
records. `analysis/tables.py` makes tables of all of them, and their description in
`docs/columns.md`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ddlbench.core.files import as_text, aside

SHARING, PROFILER = "sharing", "profiler"
# How the ranks' values become the run's.
OVER_RANKS: Mapping[str, Callable[[list[Any]], Any]] = {
    "max": max,
    "min": min,
    "mean": fmean,
    "sum": sum,
}
KINDS: Mapping[str, type | tuple[type, ...]] = {
    "str": str,
    "bool": bool,
    "boolean": bool,
    "float64": (int, float),
}
UNKNOWN = "the record does not say it"


class Why(str):
    """The reason why there is no value, in place of the value."""

    __slots__ = ()


Values = dict[str, Any]  # a run's values by column; a `Why` where there is none


@dataclass(frozen=True)
class Column:
    """A column: its name, pandas' name of its type, its meaning, its unit (empty for plain numbers
    and words).

    `over_ranks` determines how the ranks' values become the run's: `max`, `min`, `mean` or `sum`;
    empty for a value that does not belong to a rank. `once_a_node`: only ranks with local rank 0
    measure it, for their complete node. `spoiled_by` is the condition that makes the value
    meaningless, and therefore null: SHARING, other runs on the machine; PROFILER, a profiler in the
    run. `recorded_as` is its name in the record, where that differs.
    """

    name: str
    type: str
    means: str
    unit: str = ""
    over_ranks: str = ""
    once_a_node: bool = False
    spoiled_by: tuple[str, ...] = ()
    recorded_as: str = ""

    @property
    def in_record(self) -> str:
        """Return the name under which ranks left the value."""
        return self.recorded_as or self.name

    def holds(self, value: Any) -> bool:
        """Tell whether a table can hold this value, as JSON has it, in this column."""
        if value is None:
            return self.type not in ("bool", "int64")
        kinds = KINDS.get(self.type, int)
        if isinstance(value, bool):
            return kinds is bool
        return isinstance(value, kinds) and (not isinstance(value, int) or abs(value) < 1 << 63)

    def misfits(self, values: Sequence[Any]) -> list[Any]:
        """Return values that a table cannot hold in this column, at most one of each type.

        Thousands of values have two or three types: one of each is looked at, and of integers the
        smallest and the largest.
        """
        of_types = {type(value): value for value in values}
        some = [value for kind, value in of_types.items() if kind is not int]
        if int in of_types:
            integers = [value for value in values if type(value) is int]
            some += sorted({min(integers), max(integers)})
        return [value for value in some if not self.holds(value)]


def write_csv(rows: Iterable[Any], columns: Iterable[Column], path: Path) -> None:
    """Write rows as csv, with these columns. The file appears complete or not at all. Its folder is
    created.
    """
    import pandas as pd

    path.parent.mkdir(parents=True, exist_ok=True)
    with aside(path) as hidden:
        as_cells(pd.DataFrame(list(rows), columns=[column.name for column in columns])).to_csv(
            hidden, index=False
        )


def as_cells(table: Any) -> Any:
    """Return a data frame as csv holds it: texts that a spreadsheet would take for formulas are
    marked as text.
    """
    texts = {name: table[name].map(as_text) for name in table if table[name].dtype.kind == "O"}
    return table.assign(**{str(name): cells for name, cells in texts.items()})


def types(columns: Iterable[Column]) -> dict[str, str]:
    """Return the types by name, for pandas' `astype`."""
    return {column.name: column.type for column in columns}
