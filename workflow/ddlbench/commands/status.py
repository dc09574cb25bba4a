"""One screen about a study while it runs: `ddlbench status`, with the same options, from any login
node.

It reads what runs leave in `results/`, and asks squeue once where the machine has a queue. It
starts nothing and changes nothing, so it may be called at any time, beside the Snakemake that is at
work.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ddlbench.analysis.failures import PARTIAL, failures, why
from ddlbench.core import kinds, living, registry
from ddlbench.core.formatting import amount, count_of, total
from ddlbench.plan.bill import counted
from ddlbench.plan.stale import DONE, FAILED
from ddlbench.plan.values import Job, Plan, Row
from ddlbench.run import hold, survivors
from ddlbench.settings.config import ConfigError
from ddlbench.slurm import pending_reasons, squeue

RUNNING, WAITING = "running", "waiting"
MOST = 8  # runs of a kind that are named


@dataclass(frozen=True)
class Now:
    """The state of a job that is not done: `since` it runs [s since 1970], and the words for it.

    `reason` is SLURM's word for why the run's job has not started; "" where it is in no queue.
    """

    state: str
    since: float | None = None
    words: str = ""
    reason: str = ""


def now(plan: Plan, rows: Sequence[Row], results: Path, folder: Path) -> tuple[dict[str, Now], str]:
    """Return (the state of each run that is not done; what squeue did not answer, "" if all is
    known). `folder` is the one that Snakemake works in: SLURM jobs of others are not counted.
    """
    jobs: Mapping[str, survivors.SlurmJob] = {}
    trouble = ""
    todo = [row for row in rows if row.state != DONE]
    if plan.machine.partitions and todo:
        comments = {f"rule_{row.rule}_wildcards_{row.run}": row.run for row in todo}
        try:
            jobs = {comments[job.comment]: job for job in survivors.slurm_jobs({*comments}, folder)}
        except ConfigError as error:
            trouble = str(error)
    planned = plan.jobs
    return {
        row.run: _now(row, planned[row.run], results, jobs.get(row.run)) for row in todo
    }, trouble


def _now(row: Row, planned: Job[Any], results: Path, job: survivors.SlurmJob | None) -> Now:
    folder = planned.folder(results)
    partial = folder / PARTIAL
    since = None
    with suppress(OSError):
        since = (partial / "assignment.json").stat().st_mtime
    how_far = registry.member("kinds", planned.kind).progress(folder, row)
    if job:
        if job.state in squeue.LIVING:
            return Now(RUNNING, since, f"{how_far}SLURM job {job.id}")
        advice = pending_reasons.advice(job.id, job.reason)
        return Now(WAITING, None, f"SLURM job {job.id} {advice}" if advice else "", job.reason)
    holder = living.read(folder / hold.HOLDER)
    if holder is not None and hold.alive(holder) is not False:
        return Now(RUNNING, since, f"{how_far}{holder}")
    if failures([folder]):
        return Now(FAILED)
    return Now(WAITING, None, "was stopped" if partial.is_dir() else "")


def lines(
    plan: Plan,
    rows: Sequence[Row],
    states: Mapping[str, Now],
    results: Path,
    limit: float | None,
    trouble: str = "",
    clock: Callable[[], float] = time.time,
) -> list[str]:
    """Return the screen, the answer first: its subject, the progress, the expected end, what squeue
    did not answer.
    """
    by_state: dict[str, list[Row]] = {DONE: [], RUNNING: [], WAITING: [], FAILED: []}
    for row in rows:
        by_state[states[row.run].state if row.run in states else DONE].append(row)
    lines = [f"{plan.study.name} on {plan.machine.name}: {plan.study.title}"]
    lines.append(
        f"{counted(rows)}: {', '.join(f'{len(group)} {kind}' for kind, group in by_state.items())}"
    )
    rest = by_state[RUNNING] + by_state[WAITING]
    lines.append(_end(plan, rest, by_state[RUNNING], states, clock()))
    lines += [f"squeue: {trouble}"] if trouble else []
    for kind in (RUNNING, WAITING):
        # Of the waiting runs, those that need a person, and what was begun.
        lines += _first(
            f"  {kind:8}{row.run}: {words}"
            for row in by_state[kind]
            if (words := states[row.run].words)
        )
    if plan.machine.partitions and by_state[WAITING] and not trouble:
        reasons = Counter(reason for row in by_state[WAITING] if (reason := states[row.run].reason))
        queued = f"{reasons.total()} of {len(by_state[WAITING])} waiting runs have a SLURM job"
        queued += ": " * bool(reasons) + ", ".join(
            f"{count} {reason}" for reason, count in reasons.most_common()
        )
        lines.append(f"  queue   {queued}")
    failed = failures(kinds.folder(row.rule, row.run, results) for row in by_state[FAILED])
    causes = (
        f"  failed  {failure['run']}: {failure['cause'] or why(failure)}" for failure in failed
    )
    lines += _first(causes, ": ddlbench failures")
    lines += _first(
        (f"  refused {row.run}: {row.why}" for row in by_state[DONE] if row.why), ": ddlbench plan"
    )
    used = total(row.gpu_hours for row in by_state[DONE])
    began = [(row, since) for row in by_state[RUNNING] if (since := states[row.run].since)]
    so_far = sum(row.workers * max(0.0, clock() - since) / 3600 for row, since in began)
    unit = (
        "GPU hours"
        if plan.machine.device == "cuda"
        else f"hours of workers ({plan.machine.device_name})"
    )
    words = f"{unit}: {used} used by finished runs{_to_come(rest)}"
    words += f", of which {amount(so_far)} are used" if began else ""
    return [*lines, f"{words}; max_gpu_hours: {'none' if limit is None else amount(limit)}"]


def _to_come(rest: Sequence[Row]) -> str:
    """Describe what the other runs take, as far as anybody knows."""
    if not rest:
        return ""
    if all(row.gpu_hours is None for row in rest):
        return ", those of the others are not known yet (ddlbench plan says why)"
    hours = total(row.gpu_hours for row in rest)
    low, high = (total(getattr(row, f"gpu_hours_{end}") for row in rest) for end in ("low", "high"))
    return f", {hours} for the others ({low} to {high})"


def _first(lines: Iterable[str], where: str = "") -> list[str]:
    """Return the first MOST of the lines, and how many more there are, and where."""
    whole = [*lines]
    return whole[:MOST] + [f"  ... and {len(whole) - MOST} more{where}"] * (len(whole) > MOST)


def _end(
    plan: Plan,
    ahead: Sequence[Row],
    running: Sequence[Row],
    states: Mapping[str, Now],
    clock: float,
) -> str:
    """Estimate when all that is left will be done, with an interval, if it goes on as now."""
    if not ahead:
        return "expected end: nothing is left to run"
    if not running:
        return "expected end: unknown, as nothing is running"
    unknown = [row for row in ahead if row.wall_s is None]
    if unknown:
        return (
            f"expected end: unknown, as {len(unknown)} of the runs have no estimate; ddlbench plan"
            " says why"
        )
    ends = []
    lanes = sum(row.nodes for row in running) if plan.machine.partitions else 1
    for name in ("wall_s_low", "wall_s", "wall_s_high"):
        rest = {
            row.run: max(
                0.0, (getattr(row, name) or 0.0) - (clock - (states[row.run].since or clock))
            )
            for row in ahead
        }
        # Nodes are kept busy, but no run ends before its own time has passed.
        shared = (
            sum(rest[row.run] * (row.nodes if plan.machine.partitions else 1) for row in ahead)
            / lanes
        )
        ends.append(max(shared, max(rest.values())))
    low, middle, high = (
        datetime.fromtimestamp(clock + seconds).strftime("%Y-%m-%d %H:%M") for seconds in ends
    )
    how = (
        f"if the queue goes on giving {count_of(lanes, 'node')}"
        if plan.machine.partitions
        else "one after another"
    )
    return f"expected end: {middle} ({low} to {high}), {how}"
