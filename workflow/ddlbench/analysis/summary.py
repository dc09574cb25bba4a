"""What tables need of one record, as plain values: `make` is a pure function of it.
`records/ours.py` keeps it beside the record, so that tables of many runs read no steps again.
`measures` are those of all modules that make some, with why those that are null have no value.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import pandas as pd

from ddlbench.analysis import accuracy, kernels, losses, recorded, sheets, times
from ddlbench.analysis.record import Record
from ddlbench.core.columns import PROFILER, SHARING, UNKNOWN, Column, Values, Why

# Made of measures of more than one module.
MFU = Column(
    "mfu",
    "float64",
    "Model FLOPs utilization: the operations that the model asks for, divided by those that the"
    " workers could do at their peak (`peak_tflops_per_worker` of the machine) in the run's"
    " precision.",
    spoiled_by=(SHARING, PROFILER),
)
FULL_ENERGY = Column(
    "full_energy_j",
    "float64",
    "Energy of all epochs: `energy_j * full_train_s / train_s`.",
    "J",
    spoiled_by=(SHARING, PROFILER),
)
COLUMNS = (
    *times.COLUMNS,
    MFU,
    *accuracy.COLUMNS,
    *recorded.RESOURCES,
    FULL_ENERGY,
    *recorded.COLUMNS,
)
# Of what `make` gives. Raise it where that changes for a record that is there: all summaries are
# then made again.
VERSION = 12
LISTS = {"epochs": accuracy.EPOCHS, "learning_rates": accuracy.LEARNING_RATES}

Summary = dict[str, Any]


@cache
def of_records() -> dict[str, sheets.Sheet]:
    """Return the tables with rows of one record; asked late, because table `runs` has columns from
    here.
    """
    return {name: sheet for name, sheet in sheets.every().items() if sheet.of_record}


@cache
def columns() -> dict[str, tuple[Column, ...]]:
    """Return the columns of all that a summary has rows of, by name; those of its measures as
    `values`.
    """
    ours = {"step_times": times.MEDIANS, "losses": losses.COLUMNS, "kernels": kernels.COLUMNS}
    return (
        LISTS
        | {"values": COLUMNS}
        | ours
        | {name: sheet.columns for name, sheet in of_records().items()}
    )


def make(record: Record) -> Summary:
    """Return the summary: plain values, as JSON has them. Only what a machine file says (its peaks)
    is still to come.

    `run`: columns of table `runs` that are no measures. `values`: its measures, by name; `why`: the
    reasons of those that are null. `epochs`, `learning_rates`: columns of these tables without the
    run, lists by name. `step_times`, `losses`, `kernels`: the run's row, or None. `no_kernels`: why
    a profiled run has none, or None. By the names of `of_records()`: the run's rows of these
    tables; `unread`: why it has none of one, by its name.
    """
    spec = record.spec
    row = (
        spec.columns()
        | {"status": "success" if record.success else "failed"}
        | recorded.origin(record)
    )
    row |= {
        "records": "ours",
        "images": record.images,
        "extrapolated": spec.epochs < spec.full_epochs,
    }
    summary: Summary = {
        "run": row,
        **dict.fromkeys(("step_times", "losses", "kernels", "no_kernels")),
    }
    summary |= {name: [] for name in of_records()}
    summary |= {"unread": {}, "epochs": {}, "learning_rates": {}}
    epochs = accuracy.epochs(record) if record.success else pd.DataFrame()
    if record.success:
        summary["epochs"] = _lists(epochs)
        summary["learning_rates"] = _lists(accuracy.learning_rates(record))
        if record.timed:
            summary["step_times"] = times.medians(record)
            summary["losses"] = losses.parts(record)
        if spec.profiled:
            shares = kernels.row(record)
            summary["no_kernels" if isinstance(shares, Why) else "kernels"] = shares
        for name, sheet in of_records().items():
            rows = sheet.of_record(record) if sheet.of_record else []
            if isinstance(rows, Why):
                summary["unread"][name] = rows
            else:
                summary[name] = rows
    values = measures(record, epochs)
    summary["why"] = {name: str(value) for name, value in values.items() if isinstance(value, Why)}
    summary["values"] = {
        name: _plain(value) for name, value in values.items() if not isinstance(value, Why)
    }
    return summary


def values(of_run: Mapping[str, Any], peaks: Mapping[str, float]) -> Values:
    """Return a run's measures from its summary, with the one that the machine's peaks decide; a
    `Why` for each that is null.
    """
    found = of_run["values"] | {name: Why(reason) for name, reason in of_run["why"].items()}
    found |= {"mfu": mfu_of(of_run["run"], found, peaks)}
    return {column.name: found.get(column.name, Why(UNKNOWN)) for column in COLUMNS}


def _lists(table: pd.DataFrame) -> dict[str, list[Any]]:
    """Return the columns except the run's, with None for NaN."""
    return {
        str(name): [_plain(value) for value in table[name].tolist()]
        for name in table
        if name != "run"
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: Python's own number, and None for NaN."""
    value = value.item() if hasattr(value, "item") else value
    return None if value != value else value


def mfu(images_per_s: float, flops_per_image: float, workers: int, peak_tflops: float) -> float:
    """Compute the model FLOPs utilization: the operations that the model needs, by those that
    `workers` could do at their peak.

    Source: Chowdhery et al. 2022 (arXiv:2204.02311, section 4.1): what is computed twice to save
    memory does not count.
    """
    return images_per_s * flops_per_image / (workers * peak_tflops * 1e12)


def measures(record: Record, epochs: pd.DataFrame) -> Values:
    """Return the values of COLUMNS except `mfu`; a `Why` for each that is null.

    `epochs`: the run's rows of that table.
    """
    columns = [column for column in COLUMNS if column is not MFU]
    if not record.success:
        return {column.name: Why("the run did not end successfully") for column in columns}
    spec, reasons = record.spec, record.value("ddlbench_not_measured", {})
    values = accuracy.measures(record, epochs) | recorded.measures(record)
    values |= recorded.resources(record.value("ddlbench_ranks", []), spec.device, reasons)
    if record.timed:
        values |= times.measures(record)
    values["full_energy_j"] = _full_energy(values) if record.timed else None
    spoiler, reason = (PROFILER, "the run carried a profiler") if spec.profiled else (SHARING, "")
    reason = reason or "other runs shared the machine (timed: false)"
    of_run: Values = {}
    for column in columns:
        value = values.get(column.name)
        if spoiler in column.spoiled_by and not record.timed:
            value = Why(reason)
        elif not isinstance(value, Why) and pd.isna(value):
            value = Why(UNKNOWN)
        # A framework gives the reason for what it cannot measure in some of its settings. Other
        # reasons come first.
        of_run[column.name] = (
            Why(reasons.get(column.name, UNKNOWN)) if value == Why(UNKNOWN) else value
        )
    return of_run


def mfu_of(run: Mapping[str, Any], values: Values, peaks: Mapping[str, float]) -> float | Why:
    """Compute `mfu` of a run, from its settings and its other measures.

    `peaks`: TFLOP/s of a worker by precision.
    """
    rate, flops, precision = (
        values["throughput_images_per_s"],
        values["flops_per_image"],
        run["precision"],
    )
    if isinstance(rate, Why):
        return rate
    if isinstance(flops, Why):
        return Why(f"no flops_per_image: {flops}")
    if precision not in peaks:
        return Why(f"machine {run['machine']} has no peak_tflops_per_worker of {precision}")
    return mfu(rate, flops, run["workers"], peaks[precision])


def _full_energy(values: Values) -> float | Why:
    if isinstance(values["energy_j"], Why):
        return Why(f"no energy_j: {values['energy_j']}")
    if isinstance(values["full_train_s"], Why):
        return Why(values["full_train_s"])
    return float(values["energy_j"] * values["full_train_s"] / values["train_s"])
