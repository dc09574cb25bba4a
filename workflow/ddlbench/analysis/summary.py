"""What tables need of one record, as plain values: `make` is a pure function of it. `records/ours.py` keeps it beside
the record, so that tables of many runs read no steps again.
"""

from typing import Any

import pandas as pd

from ddlbench.analysis import accuracy, kernels, losses, measures, operations, recorded, times
from ddlbench.analysis.record import Record
from ddlbench.core.columns import Why

# Of what `make` gives. Raise it where that changes for a record that is there: all summaries are then made again.
VERSION = 3
LISTS = {"epochs": accuracy.EPOCHS, "learning_rates": accuracy.LEARNING_RATES}
TABLES = LISTS | {
    "values": measures.COLUMNS,
    "step_times": times.MEDIANS,
    "losses": losses.COLUMNS,
    "kernels": kernels.COLUMNS,
    "operations": operations.COLUMNS,
    "messages": operations.MESSAGES,
}

Summary = dict[str, Any]


def make(record: Record) -> Summary:
    """The summary: plain values, as JSON has them. Only what a machine file says (its peaks) is still to come.

    `run`: columns of table `runs` that are no measures. `values`: its measures, by name; `why`: the reasons of those
    that are null. `epochs`, `learning_rates`: columns of these tables without the run, lists by name. `step_times`,
    `losses`, `kernels`: the run's row, or None. `no_kernels`: why a profiled run has none, or None. `operations`,
    `messages`: the run's rows of these tables; `unread`: why it has none of one, by its name.
    """
    spec = record.spec
    row = spec.columns() | {"status": "success" if record.success else "failed"} | recorded.origin(record)
    row |= {"records": "ours", "images": record.images, "extrapolated": spec.epochs < spec.full_epochs}
    row["control"] = spec.control
    summary: Summary = {"run": row, **dict.fromkeys(("step_times", "losses", "kernels", "no_kernels"))}
    summary |= {"operations": [], "messages": [], "unread": {}, "epochs": {}, "learning_rates": {}}
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
        for name, rows_of in (("operations", operations.of_run), ("messages", operations.messages)):
            rows = rows_of(record.folder, spec)
            if isinstance(rows, Why):
                summary["unread"][name] = rows
            else:
                summary[name] = rows
    values = measures.measures(record, epochs)
    summary["why"] = {name: str(value) for name, value in values.items() if isinstance(value, Why)}
    summary["values"] = {name: _plain(value) for name, value in values.items() if not isinstance(value, Why)}
    return summary


def _lists(table: pd.DataFrame) -> dict[str, list[Any]]:
    """The columns but the run's, with None for NaN."""
    return {str(name): [_plain(value) for value in table[name].tolist()] for name in table if name != "run"}


def _plain(value: Any) -> Any:
    """As JSON has it: Python's own number, and None for NaN."""
    value = value.item() if hasattr(value, "item") else value
    return None if value != value else value
