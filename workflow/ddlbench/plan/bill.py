"""The plan before the bill: what a study's runs will take and cost, what is done already, what is stale and why.

`snakemake plan` prints it (`table.py`) and writes `plan.csv`, one row per run, and `plan.txt`; `check_limit` keeps a
submission from passing `max_gpu_hours`. Durations are `estimate.py`'s, states `stale.py`'s; what runs read is in
`reads.py`. No torch, no pandas, no SLURM.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ddlbench import files, layout
from ddlbench.inference import InferSpec
from ddlbench.plan import asking, checkpoints, launch
from ddlbench.plan.estimate import MEASURED, Estimate, Estimator
from ddlbench.plan.infer import PlannedInference
from ddlbench.plan.measured import Measured, read_all, read_published
from ddlbench.plan.runs import Plan, PlannedRun
from ddlbench.plan.stale import DONE, STALE, Memory, state
from ddlbench.record import MLLOG, STEPS
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import Machine
from ddlbench.spec import RunSpec

# steps.parquet has one row per step and rank; of random numbers, which compress no better, a row takes this [bytes].
STEP_BYTES = 29
LOG_BYTES = 100_000  # of a record beside its steps; a rank says half a kilobyte more
RANK_BYTES = 600
FILES = 5  # of a record: the folder, run.mllog, steps.parquet, summary.jsonl, train.log
TRAIN, INFER = "train", "infer"  # the rules whose jobs are billed


@dataclass(frozen=True)
class Row:
    """One run, or one job of inference. Hours and what follows from them are those that it takes, or took if it is
    done; null is unknown.

    `estimate` says from what hours are, `estimate_by` whether they are measured, predicted or guessed (`estimate.py`).
    `block` is the first that names the run; `place` is its place in the order in which runs are made, from 1.
    `gpu_hours` are hours of workers, also where those are cores; `disk_bytes` and `inodes` are its record's;
    `checkpoint_bytes` and `checkpoint_inodes` the most that its checkpoints take while it trains.

    `rule` is INFER of a job of inference: its block is the study's key, its framework the way to serve, and it has no
    epochs.
    """

    run: str
    block: str
    place: int
    model: str
    framework: str
    loader: str
    workers: int
    nodes: int
    epochs: int
    of_epochs: int
    state: str
    why: str
    estimate: str
    wall_s: float | None
    wall_s_low: float | None
    wall_s_high: float | None
    gpu_hours: float | None
    gpu_hours_low: float | None
    gpu_hours_high: float | None
    core_hours: float | None
    energy_kwh: float | None
    energy_measured: bool | None
    price: float | None
    currency: str | None
    disk_bytes: float
    inodes: int
    asks: str | None
    checkpoint_bytes: float | None = None
    checkpoint_inodes: int | None = None
    estimate_by: str | None = None
    rule: str = TRAIN


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
    measured = read_all(Path(layout.runs(results)))
    estimator = Estimator(plan.machine, measured.values(), read_published())
    of: dict[str, str] = {}
    for block, runs in plan.blocks.items():
        for run in runs:
            of.setdefault(run, block)
    table = []
    for run, planned in plan.runs.items():
        record = measured.get(run)
        folder = Path(layout.run(run, results))
        now, why = state(
            folder, planned.spec, record.spec if record else None, planned.manifest, (memories or {}).get(run), command
        )
        row = _row(run, of[run], plan.places[run], planned, plan.machine, estimator, images, now, why, record, folder)
        room = None if now == DONE else checkpoints.room(planned.spec, measured.values())
        table.append(replace(row, checkpoint_bytes=room.bytes, checkpoint_inodes=room.inodes) if room else row)
    done = {row.run for row in table if row.state == DONE}
    asked = asking.read_all(Path(layout.inferences(results))) if plan.inferences else {}
    answers = asking.Asking(asked.values(), estimator)
    for place, (job, planned_job) in enumerate(plan.inferences.items(), start=len(table) + 1):
        folder = Path(layout.inference(job, results)).parent
        now, why = asking.state(folder, planned_job.spec, asked.get(job), planned_job.spec.run.id in done)
        table.append(_asked(job, place, planned_job, plan.machine, answers, now, why, asked.get(job)))
    return table


def _asked(
    job: str,
    place: int,
    planned: PlannedInference,
    machine: Machine,
    answers: asking.Asking,
    now: str,
    why: str,
    record: asking.Asked | None,
) -> Row:
    """The row of a job of inference."""
    spec = planned.spec
    took = answers.took(record) if now == DONE and record else answers.estimate(spec)
    low, hours, high = (None if s is None else s / 3600 for s in (took.low_s, took.s, took.high_s))
    power = _power_w(spec, machine)
    asks = planned.resources.get("asks")
    return Row(
        run=job,
        block="inference",
        place=place,
        model=spec.run.model,
        framework=spec.member,
        loader=spec.run.loader,
        workers=spec.workers,
        nodes=spec.nodes,
        epochs=0,
        of_epochs=0,
        state=now,
        why=why,
        estimate=took.basis,
        wall_s=took.s,
        wall_s_low=took.low_s,
        wall_s_high=took.high_s,
        gpu_hours=_times(hours, spec.workers),
        gpu_hours_low=_times(low, spec.workers),
        gpu_hours_high=_times(high, spec.workers),
        core_hours=_times(hours, spec.nodes, machine.cores_per_node_billed),
        energy_kwh=_times(power, hours, 1e-3, machine.pue or 1.0),
        energy_measured=None if power is None or hours is None else False,
        price=_times(hours, launch.workers_taken(spec, machine), machine.price_per_gpu_hour),
        currency=machine.currency,
        disk_bytes=record.bytes if record else asking.RECORD_BYTES * len(spec.batches),
        inodes=asking.FILES,
        asks=asks if isinstance(asks, str) else None,
        estimate_by=took.by,
        rule=INFER,
    )


def _row(
    run: str,
    block: str,
    place: int,
    planned: PlannedRun,
    machine: Machine,
    estimator: Estimator,
    images: Mapping[str, int],
    now: str,
    why: str,
    record: Measured | None,
    folder: Path,
) -> Row:
    spec = planned.spec
    if now == DONE and record:
        took = Estimate(record.took_s, record.took_s, record.took_s, "its record", MEASURED)
    else:
        limit = planned.resources.get("runtime")
        took = estimator.estimate(spec, images[spec.dataset], limit if isinstance(limit, int) else None)
    low, hours, high = (None if s is None else s / 3600 for s in (took.low_s, took.s, took.high_s))
    joules = record.energy_j if now == DONE and record else None
    watts = estimator.power_w(spec)
    measured = joules is not None or watts is not None
    if joules is None and hours is not None:
        power = watts * spec.workers if watts is not None else _power_w(spec, machine)
        joules = None if power is None else power * hours * 3600
    asks = planned.resources.get("asks")
    return Row(
        run=run,
        block=block,
        place=place,
        model=spec.model,
        framework=spec.framework,
        loader=spec.loader,
        workers=spec.workers,
        nodes=spec.nodes,
        epochs=spec.epochs,
        of_epochs=spec.full_epochs,
        state=now,
        why=why,
        estimate=took.basis,
        wall_s=took.s,
        wall_s_low=took.low_s,
        wall_s_high=took.high_s,
        gpu_hours=_times(hours, spec.workers),
        gpu_hours_low=_times(low, spec.workers),
        gpu_hours_high=_times(high, spec.workers),
        core_hours=_times(hours, spec.nodes, machine.cores_per_node_billed),
        energy_kwh=_times(joules, 1 / 3.6e6, machine.pue or 1.0),
        energy_measured=None if joules is None else measured,
        price=_times(hours, launch.workers_taken(spec, machine), machine.price_per_gpu_hour),
        currency=machine.currency,
        disk_bytes=_record_bytes(spec, images[spec.dataset], folder, now),
        inodes=FILES + spec.profiled,
        asks=asks if isinstance(asks, str) else None,
        estimate_by=took.by,
    )


def _times(*factors: float | None) -> float | None:
    """The product; unknown if one is."""
    product = 1.0
    for factor in factors:
        if factor is None:
            return None
        product *= factor
    return product


def _power_w(spec: RunSpec | InferSpec, machine: Machine) -> float | None:
    """Of all workers and nodes of a run, by the machine's file [W]."""
    if machine.power_per_worker_w is None or machine.power_per_node_w is None:
        return None
    return spec.workers * machine.power_per_worker_w + spec.nodes * machine.power_per_node_w


def _record_bytes(spec: RunSpec, images: int, folder: Path, now: str) -> float:
    """Of a record: as it is, or as many steps as there will be."""
    if now in (DONE, STALE):
        return sum((folder / name).stat().st_size for name in (MLLOG, STEPS) if (folder / name).exists())
    steps = spec.epochs * -(-images // spec.global_batch)
    return steps * spec.workers * STEP_BYTES + LOG_BYTES + spec.workers * RANK_BYTES


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
    hours, unknown = gpu_hours(table)
    where = "config/config.yaml: max_gpu_hours"
    if hours > limit:
        low, high = (sum(getattr(row, f"gpu_hours_{end}") or 0.0 for row in table) for end in ("low", "high"))
        raise ConfigError(
            f"{where}: {number(limit)} would be passed: {counted(table)} are to be made, of about {number(hours)} "
            f"GPU hours ({number(low)} to {number(high)}); look with snakemake plan, then raise it or make fewer runs"
        )
    if unknown:
        models = sorted({row.model for row in table if row.gpu_hours is None})
        raise ConfigError(
            f"{where}: {number(limit)} cannot be kept: nothing is known of {unknown} runs ({', '.join(models)}); give "
            "images_per_s of these models in the machine's file, or first make one run with --config max_gpu_hours=null"
        )


def counted(table: Sequence[Row]) -> str:
    """How many runs and jobs of inference: `31 runs`, `2 runs and 10 jobs of inference`."""
    jobs = sum(row.rule == INFER for row in table)
    runs = len(table) - jobs
    said = [f"{runs} run{'s' * (runs != 1)}"] * (runs > 0 or not jobs)
    return " and ".join([*said, *[f"{jobs} job{'s' * (jobs != 1)} of inference"] * (jobs > 0)])


def number(value: float) -> str:
    """Three digits that matter, all digits of large ones."""
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}" if value >= 0.001 else "<0.001"
