"""Table `not_measured`: why a measure is null."""

from collections.abc import Mapping
from typing import Any

from ddlbench.analysis import kernels, summary
from ddlbench.analysis.sheets import Costs, Rows, Sheet
from ddlbench.core.columns import Column, Why

COLUMNS = (
    Column("run", "str", "The run."),
    Column("column", "str", "The measure that is null."),
    Column("reason", "str", "Why."),
)


def of_summary(of_run: Mapping[str, Any], costs: Costs) -> Rows:
    """Return a row per measure of a run that is null: in `runs`, in `kernels`, or all of a
    table.
    """
    values = summary.values(of_run, costs.peaks)
    if of_run["no_kernels"]:
        percents = [column.name for column in kernels.COLUMNS if column.unit == "%"]
        values |= dict.fromkeys(percents, Why(of_run["no_kernels"]))
    values |= {name: Why(reason) for name, reason in of_run.get("unread", {}).items()}
    run = of_run["run"]["run"]
    return [
        {"run": run, "column": name, "reason": str(why)}
        for name, why in values.items()
        if isinstance(why, Why)
    ]


SHEET = Sheet(
    "One row per measure that is null, in `runs` or in `kernels`, and per table that a file of a"
    " run should be in.",
    COLUMNS,
    place=80,
    of_summary=of_summary,
)
