"""One row of the plan: a job with what it takes and costs.

Each kind of job says what is its own (`kinds/`); `make_row` makes hours, energy and price of it, the same for all.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from ddlbench.plan import launch
from ddlbench.plan.estimate import Estimate
from ddlbench.plan.kinds import Job
from ddlbench.settings.machine import Machine
from ddlbench.slurm.jobs import Ranks


@dataclass(frozen=True)
class Row:
    """One job. Hours and what follows from them are those that it takes, or took if it is done; null is unknown.

    `estimate` says from what hours are, `estimate_by` whether they are measured, predicted or guessed (`estimate.py`).
    `block` is the first that names the run; `place` is its place in the order in which runs are made, from 1.
    `gpu_hours` are hours of workers, also where those are cores; `disk_bytes` and `inodes` are its record's;
    `checkpoint_bytes` and `checkpoint_inodes` the most that its checkpoints take while it trains.

    `rule` is that which makes it: the kind of job.
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
    rule: str = "train"


class Entry(NamedTuple):
    """Where a row stands in the plan, and how far its run or job is; `state` and `why` are those of `stale.state`."""

    run: str
    block: str
    place: int
    state: str
    why: str


def make_row(
    entry: Entry, planned: Job[Any], machine: Machine, took: Estimate, energy_j: float | None, **columns: Any
) -> Row:
    """What follows for all kinds alike; `columns` are those that each says itself.

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


def _power_w(spec: Ranks, machine: Machine) -> float | None:
    """Adds up the power of all workers and nodes of a run, by the machine's file [W]."""
    if machine.power_per_worker_w is None or machine.power_per_node_w is None:
        return None
    return spec.workers * machine.power_per_worker_w + spec.nodes * machine.power_per_node_w
