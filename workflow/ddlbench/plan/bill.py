"""The plan before the bill: what a study's runs will take and cost, what is done already, what is stale and why.

`ddlbench plan` prints it (`table.py`) and writes `plan.csv`, one row per run, and `plan.txt`; `check_limit` keeps a
submission from passing `max_gpu_hours`. `row.py` says what a row holds. Durations are `estimate.py`'s, states
`stale.py`'s; what runs read is in `reads.py`. No torch, no pandas, no SLURM.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ddlbench.core import files, layout
from ddlbench.core.plural import amount, count_of
from ddlbench.plan import asking, checkpoints
from ddlbench.plan.estimate import Estimator
from ddlbench.plan.measured import read_all, read_published
from ddlbench.plan.row import INFER, Entry, Row, of_inference, of_run
from ddlbench.plan.runs import Plan
from ddlbench.plan.stale import DONE, Memory, state
from ddlbench.settings.config import ConfigError


def rows(
    plan: Plan,
    images: Mapping[str, int],
    results: Path,
    memories: Mapping[str, Memory] | None = None,
    command: str | None = None,
) -> list[Row]:
    """One row per run, in the plan's order, then one per job of inference; `memories` by run and `command` are for
    `stale.state`.
    """
    records = read_all(Path(layout.runs(results)))
    estimator = Estimator(plan.machine, records.values(), read_published())
    block_of: dict[str, str] = {}
    for block, runs in plan.blocks.items():
        for run in runs:
            block_of.setdefault(run, block)
    table = []
    for run, planned in plan.runs.items():
        record, folder = records.get(run), Path(layout.run(run, results))
        recorded, memory = record.spec if record else None, (memories or {}).get(run)
        is_now, why = state(folder, planned.spec, recorded, planned.manifest, memory, command)
        entry = Entry(run, block_of[run], plan.places[run], is_now, why)
        room = None if is_now == DONE else checkpoints.room(planned.spec, records.values())
        epoch = images[planned.spec.dataset]
        table.append(of_run(entry, planned, estimator, epoch, record, folder, room))
    return table + _asked(plan, results, estimator, {one.run for one in table if one.state == DONE})


def _asked(plan: Plan, results: Path, trains: Estimator, done: Collection[str]) -> list[Row]:
    """The rows of jobs of inference; `done` are the runs that need not be made."""
    if not plan.inferences:
        return []
    records = asking.read_all(Path(layout.inferences(results)))
    answers = asking.Asking(records.values(), trains)
    table = []
    for place, (name, planned) in enumerate(plan.inferences.items(), start=len(plan.runs) + 1):
        record, folder = records.get(name), Path(layout.inference(name, results)).parent
        is_now, why = asking.state(folder, planned.spec, record, planned.spec.run.id in done)
        entry = Entry(name, "inference", place, is_now, why)
        table.append(of_inference(entry, planned, answers, record))
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


def counted(table: Sequence[Row]) -> str:
    """How many runs and jobs of inference: `31 runs`, `2 runs and 10 jobs of inference`."""
    jobs = sum(row.rule == INFER for row in table)
    runs = len(table) - jobs
    said = [count_of(runs, "run")] * (runs > 0 or not jobs)
    return " and ".join([*said, *[f"{count_of(jobs, 'job')} of inference"] * (jobs > 0)])
