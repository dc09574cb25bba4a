"""The bill so far, and the plan beside what runs took, from the rows of `ddlbench plan`
(`plan/bill.py`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ddlbench.core import kinds
from ddlbench.core.formatting import rounded, total
from ddlbench.plan.estimate import Doubling, Estimator
from ddlbench.plan.stale import DONE
from ddlbench.plan.values import Plan, Row

NOT_KNOWN = "unknown"


def tiles(
    rows: Sequence[Row], unit: str, before: Mapping[str, float | None]
) -> list[tuple[str, str, str]]:
    """Return (name, amount, remark) of runs, hours, energy and price; unknown amounts are left out.

    `before` is the plan's estimate for each run before there was any record [s].
    """
    done, todo = (
        [row for row in rows if row.state == DONE],
        [row for row in rows if row.state != DONE],
    )
    worker = unit.removesuffix("s")
    tiles = []
    for rule in kinds.rules():
        jobs = [row for row in rows if row.rule == rule]
        if jobs or kinds.trains(rule):
            missing = [row for row in jobs if row.state != DONE]
            name = f"{'s'.join(kinds.of_rule(rule).noun)} done"
            states = ", ".join(
                f"{count} {state}" for state, count in Counter(row.state for row in missing).items()
            )
            tiles.append(
                (name, f"{len(jobs) - len(missing)} of {len(jobs)}", states or "all of the study")
            )
    tiles.append(
        (
            f"{worker} hours used",
            _sum(row.gpu_hours for row in done),
            "of what is done, from records",
        )
    )
    trained = [row for row in done if kinds.trains(row.rule)]
    if trained:
        tiles.append((f"{worker} hours planned", *_planned(trained, before)))
    if todo:
        tiles.append((f"{worker} hours to come", *_to_come(todo)))
    if any(row.energy_kwh is not None for row in done):
        how = (
            "measured"
            if all(row.energy_measured for row in done)
            else "in part from the machine's design power"
        )
        tiles.append(("energy [kWh]", _sum(row.energy_kwh for row in done), how))
    if any(row.price is not None for row in done):
        how = f"at the machine's price of a {worker} hour"
        tiles.append((f"price [{done[0].currency}]", _sum(row.price for row in done), how))
    return tiles


def _to_come(todo: Sequence[Row]) -> tuple[str, str]:
    """Return what the runs that are left take, and between which ends."""
    if all(row.gpu_hours is None for row in todo):
        return NOT_KNOWN, "no run like them has ended yet"
    low, high = (_sum(getattr(row, f"gpu_hours_{end}") for row in todo) for end in ("low", "high"))
    return _sum(row.gpu_hours for row in todo), f"{low} to {high}"


def _sum(values: Iterable[float | None]) -> str:
    return total(values, lambda value: rounded(value, 2))


def _planned(done: Sequence[Row], before: Mapping[str, float | None]) -> tuple[str, str]:
    """Return what finished runs were planned to take, and what those of them took that a plan could
    predict.
    """
    table = took(done, before)
    if not table:
        return NOT_KNOWN, "no estimate was possible before there were records"
    hours = {
        name: _sum(row[f"{name}_worker_hours"] for row in table) for name in ("planned", "took")
    }
    of_which = "for them" if len(table) == len(done) else f"for {len(table)} of them"
    return hours["planned"], f"{of_which}, before any record; they took {hours['took']}"


def planned(
    plan: Plan, images: Mapping[str, int], published: Sequence[Doubling]
) -> dict[str, float | None]:
    """Return the estimates of `ddlbench plan` before there was any record, by run [s]; None where
    it had no estimate.
    """
    before = Estimator(plan.machine, (), published)
    jobs = {run: job.spec for run, job in plan.runs.items() if job.spec.dataset in images}
    return {run: before.estimate(spec, images[spec.dataset]).s for run, spec in jobs.items()}


def took(rows: Sequence[Row], before: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """Compare plan and record: one row per finished run whose time a plan could estimate
    beforehand.
    """
    table = []
    for row in rows:
        plan = before.get(row.run)
        if row.state == DONE and row.wall_s and plan:
            took = {
                "run": row.run,
                "workers": row.workers,
                "nodes": row.nodes,
                "ratio": row.wall_s / plan,
            }
            for name, seconds in (("planned", plan), ("took", row.wall_s)):
                took |= {f"{name}_s": seconds, f"{name}_worker_hours": seconds / 3600 * row.workers}
            table.append(took)
    return table
