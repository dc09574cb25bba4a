"""One row of the plan: a run, or a job of inference, with what it takes and costs.

`of_run` and `of_inference` say what is each one's own; `_row` makes hours, energy and price of it, the same for both.
`bill.py` asks for one row after another.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ddlbench.core.record import MLLOG, STEPS
from ddlbench.core.spec import RunSpec
from ddlbench.plan import asking, launch
from ddlbench.plan.checkpoints import Room
from ddlbench.plan.estimate import MEASURED, Estimate, Estimator
from ddlbench.plan.infer import PlannedInference
from ddlbench.plan.measured import Measured
from ddlbench.plan.runs import PlannedRun
from ddlbench.plan.stale import DONE, STALE
from ddlbench.settings.machine import Machine
from ddlbench.train.inference import InferSpec

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


class Entry(NamedTuple):
    """Where a row stands in the plan, and how far its run or job is; `state` and `why` are those of `stale.state`."""

    run: str
    block: str
    place: int
    state: str
    why: str


def of_run(
    entry: Entry,
    planned: PlannedRun,
    estimator: Estimator,
    images: int,
    record: Measured | None,
    folder: Path,
    room: Room | None,
) -> Row:
    """The row of a run with `images` per epoch; `folder` is its record's, `room` what its checkpoints take."""
    spec = planned.spec
    if entry.state == DONE and record:
        took = Estimate(record.took_s, record.took_s, record.took_s, "its record", MEASURED)
        energy_j = record.energy_j
    else:
        limit = planned.resources.get("runtime")
        took = estimator.estimate(spec, images, limit if isinstance(limit, int) else None)
        energy_j = None
    per_worker_w = estimator.power_w(spec)
    if energy_j is None and took.s is not None and per_worker_w is not None:
        energy_j = per_worker_w * spec.workers * took.s
    return _row(
        entry,
        planned,
        estimator.machine,
        took,
        energy_j,
        model=spec.model,
        framework=spec.framework,
        loader=spec.loader,
        epochs=spec.epochs,
        of_epochs=spec.full_epochs,
        disk_bytes=_record_bytes(spec, images, folder, entry.state),
        inodes=FILES + spec.profiled,
        checkpoint_bytes=room.bytes if room else None,
        checkpoint_inodes=room.inodes if room else None,
    )


def of_inference(entry: Entry, planned: PlannedInference, answers: asking.Asking, record: asking.Asked | None) -> Row:
    """The row of a job of inference."""
    spec = planned.spec
    return _row(
        entry,
        planned,
        answers.trains.machine,
        answers.took(record) if entry.state == DONE and record else answers.estimate(spec),
        None,
        rule=INFER,
        model=spec.run.model,
        framework=spec.member,
        loader=spec.run.loader,
        epochs=0,
        of_epochs=0,
        disk_bytes=record.bytes if record else asking.RECORD_BYTES * len(spec.batches),
        inodes=asking.FILES,
    )


def _row(
    entry: Entry,
    planned: PlannedRun | PlannedInference,
    machine: Machine,
    took: Estimate,
    energy_j: float | None,
    **columns: Any,
) -> Row:
    """What follows for runs and jobs of inference alike; `columns` are those that each says itself.

    `energy_j` is measured; where it is None, the machine's file says the power.
    """
    spec = planned.spec
    low, hours, high = (None if s is None else s / 3600 for s in (took.low_s, took.s, took.high_s))
    energy_kwh = _times(_power_w(spec, machine), hours, 1e-3) if energy_j is None else energy_j / 3.6e6
    asks = planned.resources.get("asks")
    return Row(
        **entry._asdict(),
        **columns,
        workers=spec.workers,
        nodes=spec.nodes,
        estimate=took.basis,
        estimate_by=took.by,
        wall_s=took.s,
        wall_s_low=took.low_s,
        wall_s_high=took.high_s,
        gpu_hours=_times(hours, spec.workers),
        gpu_hours_low=_times(low, spec.workers),
        gpu_hours_high=_times(high, spec.workers),
        core_hours=_times(hours, spec.nodes, machine.cores_per_node_billed),
        energy_kwh=_times(energy_kwh, machine.pue or 1.0),
        energy_measured=None if energy_kwh is None else energy_j is not None,
        price=_times(hours, launch.workers_taken(spec, machine), machine.price_per_gpu_hour),
        currency=machine.currency,
        asks=asks if isinstance(asks, str) else None,
    )


def _times(*factors: float | None) -> float | None:
    """Multiplies; unknown if one factor is."""
    product = 1.0
    for factor in factors:
        if factor is None:
            return None
        product *= factor
    return product


def _power_w(spec: RunSpec | InferSpec, machine: Machine) -> float | None:
    """Adds up the power of all workers and nodes of a run, by the machine's file [W]."""
    if machine.power_per_worker_w is None or machine.power_per_node_w is None:
        return None
    return spec.workers * machine.power_per_worker_w + spec.nodes * machine.power_per_node_w


def _record_bytes(spec: RunSpec, images: int, folder: Path, now: str) -> float:
    """Of a record: as it is, or as many steps as there will be."""
    if now in (DONE, STALE):
        return sum((folder / name).stat().st_size for name in (MLLOG, STEPS) if (folder / name).exists())
    steps = spec.epochs * -(-images // spec.global_batch)
    return steps * spec.workers * STEP_BYTES + LOG_BYTES + spec.workers * RANK_BYTES
