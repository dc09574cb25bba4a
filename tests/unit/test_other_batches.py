"""A reading that nothing confirms is proved by the same program at another batch, or stays
unproved.
"""

from typing import Any

import pytest
from ddlbench.analysis.recorded import prove_by_other_batches

UNPROVED = {
    "machine": "local",
    "model": "mine",
    "framework": "mine",
    "settings": None,
    "reading": "read, not proved",
    "reading_proved": False,
    "ranks_together": "yes",
    "confirmed": False,
}


def runs(*sizes: tuple[int, int], **more: Any) -> list[dict[str, Any]]:
    """Runs of a program with such batches and steps."""
    return [UNPROVED | {"global_batch": batch, "steps": steps} | more for batch, steps in sizes]


@pytest.mark.parametrize(
    ("table", "proved"),
    [
        (runs((8, 199), (16, 99)), True),
        (runs((8, 990), (64, 120), (8, 995)), True),
        (runs((8, 200), (16, 200)), False),  # as many steps: samples, epochs, or a fixed number
        (runs((8, 5), (16, 5)), False),
        (runs((8, 12), (16, 6)), False),  # too few to tell
        (runs((8, 200), (8, 200)), False),
        (runs((8, 200), (16, 130)), False),
        (runs((8, 199), (16, 99), stopped_after="5 minutes"), False),
        ([*runs((8, 199)), *runs((16, 99), settings="lr=2")], False),
        ([*runs((8, 199)), *runs((16, 99), model="other")], False),
    ],
)
def test_as_many_samples_in_fewer_steps_prove_a_reading(
    table: list[dict[str, Any]], proved: bool
) -> None:
    prove_by_other_batches(table)
    assert {run["reading_proved"] for run in table} == {proved}
    assert {run["confirmed"] for run in table} == {proved}
    assert all(("proved by" in run["reading"]) is proved for run in table)


def test_what_is_wrong_beside_the_reading_stays_wrong() -> None:
    tables = (
        runs((8, 199), (16, 99), **more)
        for more in (
            {"ranks_together": "no"},
            {"printed_rate_agrees": False},
            {"pauses_known": False},
        )
    )
    for table in tables:
        prove_by_other_batches(table)
        assert all(run["reading_proved"] and not run["confirmed"] for run in table)


def test_others_are_left_as_they_are() -> None:
    ours = [
        {"run": "a", "reading_proved": True, "reading": "counted", "steps": 9, "global_batch": 8}
    ]
    older = [UNPROVED | {"reading_proved": None, "reading": None, "global_batch": 8, "steps": 100}]
    before = [dict(run) for run in (*ours, *older)]
    prove_by_other_batches([*ours, *older])
    assert [*ours, *older] == before
