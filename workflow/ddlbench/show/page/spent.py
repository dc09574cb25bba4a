"""The bill so far, and the plan beside what runs took, from the rows of `ddlbench plan` (`plan/row.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ddlbench.plan.estimate import Estimator
from ddlbench.plan.measured import Published
from ddlbench.plan.row import INFER, Row
from ddlbench.plan.runs import Plan
from ddlbench.plan.stale import DONE
from ddlbench.show.page.words import number


def tiles(rows: Sequence[Row], unit: str, before: Mapping[str, float | None]) -> list[tuple[str, str, str]]:
    """(what, how much, what to know of it): runs, hours, energy, price; what nobody knows is not among them.

    `before` is what a plan said of each run before there was any record [s].
    """
    done, todo = [row for row in rows if row.state == DONE], [row for row in rows if row.state != DONE]
    one = unit.removesuffix("s")
    said = []
    for asks, name in ((False, "runs done"), (True, "jobs of inference done")):
        of = [row for row in rows if (row.rule == INFER) == asks]
        if of or not asks:
            left = [row for row in of if row.state != DONE]
            said.append((name, f"{len(of) - len(left)} of {len(of)}", _states(left)))
    said.append((f"{one} hours used", _sum(done, "gpu_hours"), "of what is done, from records"))
    trained = [row for row in done if row.rule != INFER]
    if trained:
        said.append((f"{one} hours planned", *_planned(trained, before)))
    if todo:
        low, high = _sum(todo, "gpu_hours_low"), _sum(todo, "gpu_hours_high")
        said.append((f"{one} hours to come", _sum(todo, "gpu_hours"), f"{low} to {high}"))
    if any(row.energy_kwh is not None for row in done):
        how = "measured" if all(row.energy_measured for row in done) else "in part from the machine's design power"
        said.append(("energy [kWh]", _sum(done, "energy_kwh"), how))
    if any(row.price is not None for row in done):
        said.append((f"price [{done[0].currency}]", _sum(done, "price"), f"at the machine's price of a {one} hour"))
    return said


def _planned(done: Sequence[Row], before: Mapping[str, float | None]) -> tuple[str, str]:
    """What finished runs were planned to take, and what those of them took that a plan could tell."""
    table = took(done, before)
    if not table:
        return "?", "the machine's file has no images_per_s for them"
    hours = {name: number(sum(row[f"{name}_worker_hours"] for row in table)) for name in ("planned", "took")}
    told = "for them" if len(table) == len(done) else f"for {len(table)} of them"
    return hours["planned"], f"{told}, before any record; they took {hours['took']}"


def _states(todo: Sequence[Row]) -> str:
    counts: dict[str, int] = {}
    for row in todo:
        counts[row.state] = counts.get(row.state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "all of the study"


def _sum(rows: Sequence[Row], name: str) -> str:
    """The sum; `?` if nothing is known, with `>` before it if some of it is not."""
    values = [getattr(row, name) for row in rows]
    known = [value for value in values if value is not None]
    if values and not known:
        return "?"
    return (">" if len(known) < len(values) else "") + (number(sum(known)) if sum(known) else "0")


def planned(plan: Plan, images: Mapping[str, int], published: Sequence[Published]) -> dict[str, float | None]:
    """What `ddlbench plan` would have said before there was any record, by run [s]; None where it knew nothing."""
    before = Estimator(plan.machine, (), published)
    return {run: before.estimate(job.spec, images[job.spec.dataset]).s for run, job in plan.runs.items()}


def took(rows: Sequence[Row], before: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """Plan against record: one row per finished run whose time a plan could tell beforehand."""
    table = []
    for row in rows:
        plan = before.get(row.run)
        if row.state == DONE and row.wall_s and plan:
            hours = {"planned": plan / 3600, "took": row.wall_s / 3600}
            of_workers = {f"{name}_worker_hours": value * row.workers for name, value in hours.items()}
            of_nodes = {f"{name}_node_hours": value * row.nodes for name, value in hours.items()}
            ratio = {"planned_s": plan, "took_s": row.wall_s, "ratio": row.wall_s / plan}
            table.append({"run": row.run, "workers": row.workers, "nodes": row.nodes} | ratio | of_workers | of_nodes)
    return table
