"""Records to tables: the way in. `tables.py` says what is in them, docs/columns.md shows it to people."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ddlbench.analysis import comparisons, failures, kernels, recorded, refusals, sheets, summary, tables
from ddlbench.analysis.price import FREE, Tariff
from ddlbench.analysis.sheets import Terms
from ddlbench.analysis.summary import Summary
from ddlbench.analysis.tables import TABLES, Rows
from ddlbench.core import registry
from ddlbench.core.columns import UNKNOWN, Why

LONG = ("epochs", "learning_rates")  # rows per epoch: written while records are read, as they may not fit in memory


def collect(
    folders: Sequence[Path],
    folder: Path,
    peaks: Mapping[str, float] | None = None,
    settings: Mapping[str, str] | None = None,
    order: Sequence[str] = (),
    scaling: Mapping[str, str] | None = None,
    tariff: Tariff = FREE,
    read: Callable[[Path, str | None], Summary | None] | None = None,
    terms: Terms | None = None,
    beside: Iterable[Path] = (),
) -> Rows:
    """Read run folders and write all tables into `folder`, rows sorted by run id. Gives the rows of table `refused`.

    `read` is that of a member of `records/`, ours if it is None: others' records are no folders, but files.

    `peaks` are the machine's `peak_tflops_per_worker`, by precision; `settings` are digests of what the plan has for
    each run (`records/_planned.py`), without which a record of any settings is taken; `order` are the plan's runs in
    their order, `scaling` what its blocks say of them (`plan/runs.py`), `tariff` is the machine's; `terms` are for
    tables of `sheets/`. A folder with a log is a record. One that cannot be believed is in table `refused` and in no
    other, and keeps no other run from its tables. A folder without a log that a failed run left something in is in
    table `failures`, and so are those of the folders `beside`, of jobs that do not train.
    """
    read = read or registry.member("records", "ours").read

    def step(some: Sequence[Path], left_out: Mapping[Path, Exception]) -> Rows:
        rows: dict[str, Rows] = {name: [] for name in TABLES if name not in LONG}
        rows["failures"] = failures.failures([*folders, *beside])
        rows["refused"] = [refusals.row(run, refusals.not_understood(run, error)) for run, error in left_out.items()]
        with ExitStack() as stack:
            add = {name: stack.enter_context(tables.writing(name, folder)) for name in LONG}
            for run in sorted(some, key=lambda run: (run.name, run)):
                try:
                    of_run = read(run, (settings or {}).get(run.name))
                    short = rows_of(of_run, peaks or {}) if of_run is not None else {}
                    long = {name: columns_of(name, of_run) for name in LONG} if of_run is not None else {}
                except refusals.RefusedError as error:
                    rows["refused"].append(refusals.row(run, error))
                    continue
                except Exception as error:  # whatever stands in a record
                    rows["refused"].append(refusals.row(run, refusals.not_understood(run, error)))
                    continue
                for name, of_table in short.items():
                    rows[name] += of_table
                for name, columns in long.items():
                    add[name](columns)
        rows["refused"].sort(key=lambda row: (row["run"], row["file"]))
        _as_planned(rows["runs"], order, scaling or {})
        recorded.prove_by_other_batches(rows["runs"])
        rows["comparisons"] = comparisons.rows(tables.frame("runs", rows["runs"]), tariff)
        for name, sheet in sheets.every().items():
            if sheet.of_study:
                rows[name] = sheet.of_study(rows[name], tables.frame("runs", rows["runs"]), terms or Terms())
        for name, of_table in rows.items():
            tables.write(name, of_table, folder)
        return rows["refused"]

    beside = list(beside)
    refused, _ = refusals.sparing(folders, step)
    return refused


def _as_planned(runs: Rows, order: Sequence[str], scaling: Mapping[str, str]) -> None:
    """Give each run its place by the time when it began, and what was planned; null where nobody knows."""
    began = sorted((run["started_s"], run["run"]) for run in runs if run["started_s"] is not None)
    places = {run: place for place, (_, run) in enumerate(began, start=1)}
    planned_places = {run: place for place, run in enumerate(order, start=1)}
    for run in runs:
        run |= {"place": places.get(run["run"]), "planned_place": planned_places.get(run["run"])}
        run["scaling"] = scaling.get(run["run"])


def rows_of(of_run: Summary, peaks: Mapping[str, float]) -> dict[str, Rows]:
    """One run's rows of every table that it is in, but those of LONG."""
    run, why = of_run["run"], of_run["why"]
    values = of_run["values"] | {name: Why(reason) for name, reason in why.items()}
    values |= {"mfu": summary.mfu_of(run, values, peaks)}
    values = {column.name: values.get(column.name, Why(UNKNOWN)) for column in summary.COLUMNS}
    rows = {"not_measured": _not_measured(run["run"], values)}
    rows["runs"] = [run | {name: None if isinstance(value, Why) else value for name, value in values.items()}]
    for name in ("step_times", "losses", "kernels"):
        rows[name] = [of_run[name]] if of_run.get(name) else []
    if of_run["no_kernels"]:
        percents = [column.name for column in kernels.COLUMNS if column.unit == "%"]
        rows["not_measured"] += _not_measured(run["run"], dict.fromkeys(percents, Why(of_run["no_kernels"])))
    rows |= {name: of_run[name] for name in sheets.every() if name in of_run}
    unread = {name: Why(reason) for name, reason in of_run.get("unread", {}).items()}
    rows["not_measured"] += _not_measured(run["run"], unread)
    return rows


def columns_of(name: str, of_run: Summary) -> dict[str, list[Any]]:
    """One run's rows of a table of LONG, as columns."""
    columns = of_run[name]
    return {"run": [of_run["run"]["run"]] * len(columns["epoch"]), **columns} if columns else {}


def _not_measured(run: str, values: Mapping[str, Any]) -> Rows:
    return [{"run": run, "column": name, "reason": str(why)} for name, why in values.items() if isinstance(why, Why)]
