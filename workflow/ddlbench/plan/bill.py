"""The plan before the bill: what a study's runs will take and cost, what is done already, what is stale and why.

`ddlbench plan` prints it (`table.py`) and writes `plan.csv`, one row per run, and `plan.txt`; `check_limit` keeps a
submission from passing `max_gpu_hours`. `row.py` says what a row holds. Durations are `estimate.py`'s, states
`stale.py`'s; what runs read is in `reads.py`. No torch, no pandas, no SLURM.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ddlbench.core import files, kinds, layout, registry
from ddlbench.core.plural import amount
from ddlbench.plan.estimate import Estimator
from ddlbench.plan.kinds import Books
from ddlbench.plan.measured import read_all, read_published
from ddlbench.plan.row import Row
from ddlbench.plan.runs import Plan
from ddlbench.plan.stale import Memory
from ddlbench.settings.config import ConfigError


def rows(
    plan: Plan,
    images: Mapping[str, int],
    results: Path,
    memories: Mapping[str, Memory] | None = None,
    command: str | None = None,
) -> list[Row]:
    """One row per job, kind by kind in the plan's order; `memories` by run and `command` are for `stale.state`."""
    records = read_all(Path(layout.runs(results=results)))
    estimator = Estimator(plan.machine, records.values(), read_published())
    books = Books(plan, images, results, records, estimator, memories or {}, command)
    table: list[Row] = []
    for name, jobs in plan.by_kind().items():
        table += registry.member("kinds", name).rows(jobs, books, table)
    return table


def write(table: Sequence[Row], text: str, folder: Path) -> None:
    """`plan.csv`, one row per run, and `plan.txt`, what is printed."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [field.name for field in fields(Row)]
    lines = io.StringIO(newline="")
    out = csv.writer(lines, lineterminator="\n")
    out.writerow(names)
    out.writerows([_cell(getattr(row, name)) for name in names] for row in table)
    files.write_text(folder / "plan.csv", lines.getvalue())
    files.write_text(folder / "plan.txt", text)


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def gpu_hours(table: Iterable[Row]) -> tuple[float, int]:
    """(sum of those that are known, number of runs of which nothing is known)."""
    hours = [row.gpu_hours for row in table]
    return sum(h for h in hours if h is not None), sum(h is None for h in hours)


def check_limit(table: Sequence[Row], limit: float | None) -> None:
    """Raises ConfigError if the runs of `table`, all to be made, would pass `max_gpu_hours`, or nobody can tell."""
    if limit is None or not table:
        return
    known, _ = gpu_hours(table)
    # Of runs of which nobody knows more: the most that their queue gives them.
    hours = known + sum(row.gpu_hours_high or 0.0 for row in table if row.gpu_hours is None)
    unknown = sum(row.gpu_hours_high is None for row in table)
    where = "config/config.yaml: max_gpu_hours"
    if hours > limit:
        low, high = (sum(getattr(row, f"gpu_hours_{end}") or 0.0 for row in table) for end in ("low", "high"))
        raise ConfigError(
            f"{where}: {amount(limit)} would be passed: {counted(table)} are to be made, of about {amount(hours)} "
            f"GPU hours ({amount(low)} to {amount(high)}); look with ddlbench plan, then raise it or make fewer runs"
        )
    if unknown:
        nothing = [row for row in table if row.gpu_hours_high is None]
        models = sorted({row.model for row in nothing})
        raise ConfigError(
            f"{where}: {amount(limit)} cannot be kept: nothing is known of {counted(nothing)} ({', '.join(models)}); "
            "give images_per_s of these models in the machine's file, or first make one run with "
            "--config max_gpu_hours=null"
        )


def counted(table: Iterable[Row]) -> str:
    """How many jobs: `31 runs`, `2 runs and 10 jobs of inference`."""
    return kinds.counted(row.rule for row in table)
