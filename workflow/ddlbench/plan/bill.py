"""The plan before the bill: what a study's runs will take and cost, what is done already, what is
stale and why.

`ddlbench plan` prints it (`table.py`) and writes `plan.csv`, one row per run, and `plan.txt`;
`check_limit` keeps a submission from passing `max_gpu_hours`. Durations are `estimate.py`'s, states
`stale.py`'s; what runs read is in `reads.py`. No torch, no pandas, no SLURM.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from math import prod
from pathlib import Path
from typing import Any

from ddlbench.analysis.price import tariff
from ddlbench.core import files, kinds, layout, registry
from ddlbench.core.formatting import amount
from ddlbench.core.registry import OWN
from ddlbench.plan.estimate import Estimate, Estimator, read_all, read_published
from ddlbench.plan.kinds import Books
from ddlbench.plan.stale import JobMetadata
from ddlbench.plan.values import Job, Plan, Row
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import Machine


def make_row(
    planned: Job[Any],
    machine: Machine,
    took: Estimate,
    energy_j: float | None = None,
    **columns: Any,
) -> Row:
    """Make a row with what follows for all kinds alike; `columns` are those that each kind gives
    itself. `energy_j` is measured; where it is None, the power comes from the machine's file.
    """

    def times(*factors: float | None) -> float | None:
        """Multiply the factors; return None if one of them is unknown."""
        numbers = [factor for factor in factors if factor is not None]
        return prod(numbers) if len(numbers) == len(factors) else None

    spec = planned.spec
    low, hours, high = (None if s is None else s / 3600 for s in (took.low_s, took.s, took.high_s))
    measured = energy_j is not None
    if (
        energy_j is None
        and machine.power_per_worker_w is not None
        and machine.power_per_node_w is not None
    ):
        power_w = spec.workers * machine.power_per_worker_w + spec.nodes * machine.power_per_node_w
        energy_j = times(power_w, took.s)
    sold = tariff(machine)
    blocked = sold.workers_blocked(spec.workers, spec.nodes, spec.timed)
    asks = planned.resources.get("asks")
    return Row(
        **columns,
        run=spec.id,
        rule=planned.rule,
        workers=spec.workers,
        workers_blocked=blocked,
        nodes=spec.nodes,
        estimate=took.basis,
        estimate_by=took.by,
        wall_s=took.s,
        wall_s_low=took.low_s,
        wall_s_high=took.high_s,
        gpu_hours=times(hours, spec.workers),
        gpu_hours_low=times(low, spec.workers),
        gpu_hours_high=times(high, spec.workers),
        core_hours=times(hours, spec.nodes, machine.cores_per_node_billed),
        energy_kwh=sold.energy_kwh(energy_j),
        energy_measured=None if energy_j is None else measured,
        price=sold.price(hours, blocked),
        currency=machine.currency,
        asks=asks if isinstance(asks, str) else None,
    )


def rows(
    plan: Plan,
    images: Mapping[str, int],
    results: Path,
    metadata: Mapping[str, JobMetadata] | None = None,
    command: str | None = None,
) -> list[Row]:
    """Return one row per job, kind by kind in the plan's order; `metadata` by run and `command`
    are for `stale.state`.
    """
    records = read_all(Path(layout.runs(results=results)))
    estimator = Estimator(plan.machine, records.values(), read_published())
    books = Books(plan, images, results, records, estimator, metadata or {}, command)
    table: list[Row] = []
    for name, jobs in plan.by_kind().items():
        table += registry.member("kinds", name).rows(jobs, books, table)
    return table


def write(table: Sequence[Row], text: str, folder: Path) -> None:
    """Write `plan.csv`, one row per run, and `plan.txt`, what is printed."""
    folder.mkdir(parents=True, exist_ok=True)
    cells = (
        {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in vars(row).items()}
        for row in table
    )
    files.write_csv(folder / "plan.csv", cells, [field.name for field in fields(Row)])
    files.write_text(folder / "plan.txt", text)


def gpu_hours(table: Iterable[Row]) -> tuple[float, int]:
    """Return (sum of the GPU hours that are known, number of runs whose hours are unknown)."""
    hours = [row.gpu_hours for row in table]
    return sum(h for h in hours if h is not None), sum(h is None for h in hours)


def check_limit(table: Sequence[Row], limit: float) -> None:
    """Raise ConfigError if the runs of `table`, all to be made, would exceed `max_gpu_hours`, or
    nobody can tell.
    """
    hours, unknown = most_gpu_hours(table)
    where = "config/config.yaml: max_gpu_hours"
    if hours > limit:
        low, high = (
            sum(getattr(row, f"gpu_hours_{end}") or 0.0 for row in table) for end in ("low", "high")
        )
        raise ConfigError(
            f"{where}: {amount(limit)} would be exceeded: {counted(table)} are to be made, of about"
            f" {amount(hours)} GPU hours ({amount(low)} to {amount(high)}); look with ddlbench"
            " plan, then raise it or make fewer runs"
        )
    if unknown:
        models = sorted({row.model for row in unknown})
        own = all(row.loader == OWN for row in unknown)
        give = (
            "give stop_after: N minutes in the program's file"
            if own
            else "give images_per_s of these models in the machine's file"
        )
        raise ConfigError(
            f"{where}: {amount(limit)} cannot be checked: there is no estimate of the time of"
            f" {counted(unknown)} ({', '.join(models)}); {give}, or first make one run of each with"
            " --config max_gpu_hours="
        )


def most_gpu_hours(table: Iterable[Row]) -> tuple[float, list[Row]]:
    """Return the sum of the GPU hours that count against a limit, and the runs whose hours nobody
    knows. A run of unknown length counts with the most that it can take.
    """
    rows = [*table]
    hours = [row.gpu_hours if row.gpu_hours is not None else row.gpu_hours_high for row in rows]
    unknown = [row for row, of_row in zip(rows, hours, strict=True) if of_row is None]
    return sum(of_row for of_row in hours if of_row is not None), unknown


def counted(table: Iterable[Row]) -> str:
    """Format the number of jobs: `31 runs`, `2 runs and 10 jobs of inference`."""
    return kinds.counted(row.rule for row in table)
