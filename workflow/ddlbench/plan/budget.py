"""What a study's runs take of a budget of compute time, in the unit in which the centre gives it
(`budget_unit`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ddlbench.plan.stale import DONE
from ddlbench.plan.values import Row
from ddlbench.settings.machine import Machine


@dataclass(frozen=True)
class BudgetGroup:
    """Jobs of one size that are all done, or all still to be made.

    `hours` is the mean of one job; `amount` is the sum over all in the centre's unit. Both are None
    if the length of one of the jobs is unknown. `estimate_by` is the source of the hours
    (`plan/estimate.py`). `rule` is the kind of job.
    """

    rule: str
    model: str
    epochs: int
    nodes: int
    workers: int
    done: bool
    jobs: int
    hours: float | None
    amount: float | None
    estimate_by: tuple[str, ...]


def amount(row: Row, machine: Machine) -> float | None:
    """Return what a job takes in the centre's unit, of all workers that nobody else can use
    meanwhile; None if unknown.
    """
    if row.wall_s is None:
        return None
    if machine.budget_unit == "core hours":
        return row.core_hours
    hours = row.wall_s / 3600
    if machine.budget_unit == "node hours":
        return hours * row.nodes
    if machine.budget_unit == "EFLOP":  # 10^12 operations/s for an hour are 3600 / 10^6 EFLOP
        return hours * row.workers_blocked * (machine.budget_tflops_per_worker or 0.0) * 3600 / 1e6
    return hours * row.workers_blocked


def groups(table: Sequence[Row], machine: Machine) -> list[BudgetGroup]:
    """Return the jobs of a plan by kind, model, length and size; what is done first."""
    alike: dict[tuple[bool, str, str, int, int, int], list[Row]] = {}
    for row in table:
        key = (row.state != DONE, row.rule, str(row.model), row.epochs or 0, row.nodes, row.workers)
        alike.setdefault(key, []).append(row)
    return [_group(alike[key], machine) for key in sorted(alike)]


def _group(rows: Sequence[Row], machine: Machine) -> BudgetGroup:
    first = rows[0]
    known_s = [row.wall_s for row in rows if row.wall_s is not None]
    amounts = [taken for row in rows if (taken := amount(row, machine)) is not None]
    return BudgetGroup(
        rule=first.rule,
        model=first.model,
        epochs=first.epochs,
        nodes=first.nodes,
        workers=first.workers,
        done=first.state == DONE,
        jobs=len(rows),
        hours=sum(known_s) / len(rows) / 3600 if len(known_s) == len(rows) else None,
        amount=sum(amounts) if len(amounts) == len(rows) else None,
        estimate_by=tuple(sorted({row.estimate_by for row in rows if row.estimate_by})),
    )
