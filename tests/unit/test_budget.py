"""What a study's jobs take of a budget of compute time, in each unit in which centres give it."""

from dataclasses import fields, replace

import pytest
from ddlbench.plan.budget import amount, groups
from ddlbench.plan.stale import DONE, MISSING
from ddlbench.plan.values import Row
from ddlbench.settings.machine import load_machine

JUWELS = load_machine("juwels-booster")


def planned(**changed: object) -> Row:
    """A run that is still to be made, of one hour on two nodes."""
    named = dict.fromkeys(field.name for field in fields(Row)) | {
        "run": "a",
        "block": "b",
        "state": MISSING,
    }
    named |= {"rule": "train", "model": "resnet50", "framework": "ddp", "loader": "native"}
    named |= {"workers": 8, "workers_blocked": 8, "nodes": 2, "epochs": 90, "of_epochs": 90}
    named |= {"estimate_by": "guessed", "wall_s": 3600.0, "core_hours": 96.0}
    return Row(**{**named, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("unit", "expected"),
    [("core hours", 96), ("GPU hours", 8), ("node hours", 2), ("EFLOP", 0.5616)],
)
def test_a_job_is_counted_in_the_centres_unit(unit: str, expected: float) -> None:
    """8 GPUs x 19.5e12 operations/s x 3600 s are 0.5616e18."""
    machine = replace(JUWELS, budget_unit=unit)
    assert amount(planned(), machine) == pytest.approx(expected)
    part = planned(workers=2, workers_blocked=8)  # of two nodes of four that are its own alone
    assert amount(part, machine) == pytest.approx(expected)
    assert amount(planned(wall_s=None, core_hours=None), machine) is None


def test_jobs_of_one_size_are_a_group_and_what_is_done_is_apart() -> None:
    table = [
        planned(),
        planned(wall_s=7200.0, core_hours=192.0, estimate_by="predicted"),
        planned(state=DONE),
    ]
    table += [planned(workers=4, nodes=1, wall_s=None, core_hours=None)]
    done, small, large = groups(table, JUWELS)
    assert (done.done, done.jobs, done.hours, done.amount) == (True, 1, 1.0, 96.0)
    assert (large.done, large.jobs, large.hours, large.amount) == (False, 2, 1.5, 288.0)
    assert (large.nodes, large.workers, large.estimate_by) == (2, 8, ("guessed", "predicted"))
    assert (small.workers, small.jobs, small.hours, small.amount) == (4, 1, None, None)
