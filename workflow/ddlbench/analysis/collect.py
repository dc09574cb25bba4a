"""Records to tables: the way in. `sheets/` has one file per table, `tables.py` writes them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from ddlbench.analysis import refusals, tables
from ddlbench.analysis.sheets import Costs, Gathered, Planned, Sheet
from ddlbench.analysis.summary import Summary
from ddlbench.analysis.tables import TABLES, Rows
from ddlbench.core import registry


def collect(
    folders: Sequence[Path],
    folder: Path,
    planned: Planned | None = None,
    costs: Costs | None = None,
    read: Callable[[Path, str | None], Summary | None] | None = None,
) -> Rows:
    """Read run folders and write all tables into `folder`, rows sorted by run id. Gives the rows of
    refused records.

    `read` is that of a member of `records/`, ours if it is None: others' records are no folders,
    but files.

    A folder with a log is a record. One that cannot be believed is in table `refused` and in no
    other, and keeps no other run from its tables. A folder without a log that a failed run left
    something in is in table `failures`, and so are those of jobs that do not train.
    """
    read = read or registry.member("records", "ours").read
    planned, costs = planned or Planned(), costs or Costs()
    long = [name for name, sheet in TABLES.items() if sheet.long]

    def step(some: Sequence[Path], left_out: Mapping[Path, Exception]) -> Rows:
        refused = [
            refusals.row(run, refusals.not_understood(run, error))
            for run, error in left_out.items()
        ]
        rows: dict[str, Rows] = {name: [] for name in TABLES if name not in long}
        with ExitStack() as stack:
            add = {name: stack.enter_context(tables.writing(name, folder)) for name in long}
            for run in sorted(some, key=lambda run: (run.name, run)):
                try:
                    of_run = read(run, planned.settings.get(run.name))
                    if of_run is None:
                        continue
                    short = {name: rows_of(name, TABLES[name], of_run, costs) for name in rows}
                    columns = {name: columns_of(name, of_run) for name in long}
                except refusals.RefusedError as error:
                    refused.append(refusals.row(run, error))
                    continue
                except Exception as error:  # whatever stands in a record
                    refused.append(refusals.row(run, refusals.not_understood(run, error)))
                    continue
                for name in rows:
                    rows[name] += short[name]
                for name in long:
                    add[name](columns[name])
        gathered = Gathered(
            folders, refused, planned, costs, cache(lambda: tables.frame("runs", rows["runs"]))
        )
        for name in rows:
            of_study = TABLES[name].of_study
            if of_study:
                rows[name] = of_study(rows[name], gathered)
        for name, of_table in rows.items():
            tables.write(name, of_table, folder)
        return sorted(refused, key=lambda row: (row["run"], row["file"]))

    refused, _ = refusals.sparing(folders, step)
    return refused


def rows_of(name: str, sheet: Sheet, of_run: Summary, costs: Costs) -> Rows:
    """Return one run's rows of a table, from its summary."""
    if sheet.of_summary:
        return sheet.of_summary(of_run, costs)
    kept = of_run.get(name) or []
    return [kept] if isinstance(kept, dict) else list(kept)


def columns_of(name: str, of_run: Summary) -> dict[str, list[Any]]:
    """Return one run's rows of a long table, as columns."""
    columns = of_run[name]
    return {"run": [of_run["run"]["run"]] * len(columns["epoch"]), **columns} if columns else {}
