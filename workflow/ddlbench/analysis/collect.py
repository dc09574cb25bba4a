"""Records to tables: the way in. `tables.py` says what is in them, docs/columns.md shows it to people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis import accuracy, failures, kernels, origin, refusals, tables, times
from ddlbench.analysis import measures as all_measures
from ddlbench.analysis.read import Record, read
from ddlbench.analysis.tables import TABLES, Rows
from ddlbench.columns import Why
from ddlbench.record import MLLOG


def collect(folders: Sequence[Path], folder: Path, peaks: Mapping[str, float] | None = None) -> Rows:
    """Read run folders and write all tables into `folder`, rows sorted by run id. Gives the rows of table `refused`.

    `peaks` are the machine's `peak_tflops_per_worker`, by precision. A folder with a log is a record. One that cannot
    be believed is in table `refused` and in no other, and keeps no other run from its tables. A folder without a log
    that a failed run left something in is in table `failures`.
    """
    rows: dict[str, Rows] = {name: [] for name in TABLES}
    rows["failures"] = failures.failures(folders)
    for run in sorted(folders, key=lambda run: run.name):
        if not (run / MLLOG).exists():
            continue
        try:
            record = read(run)
        except refusals.RefusedError as error:
            rows["refused"].append(refusals.row(run, error))
            continue
        for name, of_run in of_record(record, peaks or {}).items():
            rows[name] += of_run
    for name in TABLES:
        tables.write(name, rows[name], folder)
    return rows["refused"]


def of_record(record: Record, peaks: Mapping[str, float]) -> dict[str, Rows]:
    """One run's rows of every table that it is in."""
    spec = record.spec
    rows: dict[str, Rows] = {}
    epochs = accuracy.epochs(record) if record.success else pd.DataFrame()
    values = all_measures.measures(record, epochs, peaks)
    rows["not_measured"] = _not_measured(spec.id, values)
    row = spec.columns() | {"status": "success" if record.success else "failed"} | origin.values(record)
    row |= {"images": record.images, "extrapolated": spec.epochs < spec.full_epochs}
    rows["runs"] = [row | {name: None if isinstance(value, Why) else value for name, value in values.items()}]
    if record.success:
        rows["epochs"] = _rows(epochs)
        rows["learning_rates"] = _rows(accuracy.learning_rates(record))
        if record.timed:
            rows["step_times"] = [times.medians(record)]
        if spec.profiled:
            shares = kernels.row(record)
            if isinstance(shares, Why):
                percents = [column.name for column in kernels.COLUMNS if column.unit == "%"]
                rows["not_measured"] += _not_measured(spec.id, dict.fromkeys(percents, shares))
            else:
                rows["kernels"] = [shares]
    return rows


def _not_measured(run: str, values: Mapping[str, Any]) -> Rows:
    return [{"run": run, "column": name, "reason": str(why)} for name, why in values.items() if isinstance(why, Why)]


def _rows(table: pd.DataFrame) -> Rows:
    return [dict(zip(map(str, table), values, strict=True)) for values in table.itertuples(index=False)]
