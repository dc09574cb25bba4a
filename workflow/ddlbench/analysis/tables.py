"""The tables that `collect` writes, all of their columns, and the page about them, docs/columns.md.

`python -m ddlbench.analysis.tables > docs/columns.md` writes the page; a test holds it to the
columns.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis import sheets
from ddlbench.analysis.sheets import Rows as Rows
from ddlbench.core import spec
from ddlbench.core.columns import PROFILER, SHARING, Column, as_cells, types
from ddlbench.core.files import aside
from ddlbench.core.recipe import Recipe

AT_ONCE = 100_000  # rows that `writing` holds in memory
EVERY = sheets.every()
TABLES = {name: sheet for name, sheet in EVERY.items() if sheet.of_job is None}
OF_JOBS = {
    name: sheet for name, sheet in EVERY.items() if sheet.of_job is not None
}  # `collect` does not write them


def frame(name: str, rows: Rows) -> pd.DataFrame:
    """Rows as a table with its columns and their types, which hold even where all is null.

    Where a RunSpec's columns come first, they have the types of their values.
    """
    names = spec.COLUMNS if EVERY[name].of_settings else ()
    columns = types(EVERY[name].columns)
    if not rows:
        return _empty(tuple(names), tuple(columns.items())).copy()
    # A copy has one block per type: of more than a hundred, pandas warns with each column that is
    # added.
    table = pd.DataFrame(rows, columns=[*names, *columns]).astype(columns)
    return table.copy() if EVERY[name].of_settings else table


@cache
def _empty(names: tuple[str, ...], columns: tuple[tuple[str, str], ...]) -> pd.DataFrame:
    """Return a table without rows, made once: most tables of a study are empty, and columns are
    typed one by one.
    """
    return pd.DataFrame([], columns=[*names, *dict(columns)]).astype(dict(columns))


def write(name: str, rows: Rows, folder: Path) -> None:
    """Write `<folder>/<name>.parquet` and, for most tables, `<name>.csv`.

    Each file appears complete or not at all.
    """
    table = frame(name, rows)
    folder.mkdir(parents=True, exist_ok=True)
    if EVERY[name].csv:
        with aside(folder / f"{name}.csv") as hidden:
            as_cells(table).to_csv(hidden, index=False)
    with aside(folder / f"{name}.parquet") as hidden:
        table.to_parquet(hidden, index=False)


@contextmanager
def writing(name: str, folder: Path) -> Iterator[Callable[[Mapping[str, list[Any]]], None]]:
    """Write a table in parts: yield a function that takes the next rows, as columns.

    Whatever the table's length, only AT_ONCE rows are in memory.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(types(TABLES[name].columns))
    pending: dict[str, list[Any]] = {column: [] for column in names}
    schema = pa.Schema.from_pandas(frame(name, []), preserve_index=False)
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        parquet = pq.ParquetWriter(stack.enter_context(aside(folder / f"{name}.parquet")), schema)
        stack.enter_context(parquet)
        csv = stack.enter_context(aside(folder / f"{name}.csv")) if TABLES[name].csv else None
        if csv:
            frame(name, []).to_csv(csv, index=False)

        def flush() -> None:
            table = pd.DataFrame(pending).astype(types(TABLES[name].columns))
            if csv and len(table):
                as_cells(table).to_csv(csv, index=False, header=False, mode="a")
            parquet.write_table(pa.Table.from_pandas(table, schema=schema, preserve_index=False))
            for column in names:
                pending[column].clear()

        def add(rows: Mapping[str, list[Any]]) -> None:
            for column, values in rows.items():
                pending[column] += values
            if len(pending["run"]) >= AT_ONCE:
                flush()

        yield add
        flush()


_JOINED = {
    "max": "largest rank's",
    "min": "smallest rank's",
    "mean": "mean over ranks",
    "sum": "sum over ranks",
}


def page(names: Collection[str] = EVERY) -> str:
    """Return docs/columns.md: every table, or those of these names, with its columns."""
    text = [
        "# Tables and their columns",
        "",
        (
            "`snakemake` writes these tables into `results/<study>/<machine>/tables`, as parquet"
            " and as csv. This page is"
        ),
        (
            "made from the declarations of the columns: `python -m ddlbench.analysis.tables >"
            " docs/columns.md`."
        ),
        "",
        (
            "Times are in seconds, and without the warm-up (`cut_steps`) where not said otherwise."
            " A measure that is"
        ),
        "null has its reason in table `not_measured`; it is never zero instead.",
    ]
    for name, table in ((name, EVERY[name]) for name in EVERY if name in names):
        text += ["", f"## `{name}`", "", table.means, ""]
        if table.of_settings:
            text += [
                "What was run, in columns with the names of a run's settings:",
                "",
                *_settings(),
                "",
            ]
            text += [
                (
                    "What came of it. *Alone*: null for runs that shared the machine or carried a"
                    " profiler."
                ),
                "",
            ]
        text += ["| column | type | unit | meaning |", "|---|---|---|---|"]
        text += [f"| `{c.name}` | {c.type} | {c.unit} | {_meaning(c)} |" for c in table.columns]
    return "\n".join(text) + "\n"


def _settings() -> Iterable[str]:
    """Yield the table of a RunSpec's columns. Recipe keys carry their meaning with them."""
    described = {f.name: str(f.metadata.get("description", "")) for f in fields(Recipe)}
    described |= {name: role.means for name, role in spec.ROLES.items() if role.means}
    yield "| column | meaning |"
    yield "|---|---|"
    yield "| `run` | The run's id, which is also its folder in `results/runs`. |"
    yield from (f"| `{name}` | {described[name]} |" for name in spec.COLUMNS if name != "run")


def _meaning(column: Column) -> str:
    notes = [_JOINED[column.over_ranks]] if column.over_ranks else []
    notes += ["once per node"] if column.once_a_node else []
    notes += ["alone"] if SHARING in column.spoiled_by else []
    notes += ["null with a profiler"] if column.spoiled_by == (PROFILER,) else []
    return f"{column.means}{f' *({chr(59).join(notes)})*'.replace(';', '; ') if notes else ''}"


if __name__ == "__main__":
    print(page(), end="")
