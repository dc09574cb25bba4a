"""What confirms a reading, and what contradicts it: numbers in, a verdict out; bursts of lines,
pauses, accuracies.
"""

import itertools
from pathlib import Path
from typing import Any

import pytest
from ddlbench.run.readings import (
    Line,
    Output,
    UnreadError,
    _counting,
    _pauses,
    _proof,
    as_fractions,
    lines,
)
from ddlbench.run.readings._values import Evaluation, StepEnd

from tests.unit.programs import spec

FACTS = {"steps": 100, "samples": 800.0, "train_s": 10.0, "whole_s": 16.0, "global_batch": 8}
BOTH = {"steps", "samples"}


@pytest.mark.parametrize(
    ("more", "confirms"),
    [
        ({}, set()),
        ({"printed_rate": 80.0}, BOTH),
        ({"printed_rate": 52.0}, BOTH),  # with pauses
        ({"printed_rate": 110.0}, set()),
        ({"printed_rate": 40.0, "workers": 2, "whole_s": 10.0}, set()),  # of one worker?
        ({"printed_rate": 41.0, "rate_of": "worker", "workers": 2}, BOTH),
        ({"printed_rate": 80.0, "rate_of": "all", "workers": 2}, BOTH),
        (
            {"printed_rate": 80.0, "workers": 2},
            {"samples"},
        ),  # of one worker, if half of the steps were read?
        ({"printed_rate": 80.0, "printed_step_s": 0.104, "workers": 2}, BOTH),
        ({"printed_step_s": 0.104}, {"steps"}),
        ({"printed_step_s": 0.104, "counts_samples": True}, BOTH),
        ({"printed_step_s": 0.3}, set()),
        ({"printed_samples_per_step": 8.0}, BOTH),
        ({"printed_samples_per_step": 4.0, "workers": 2}, BOTH),
        ({"printed_batch": 8}, {"samples"}),
        ({"printed_batch": 8, "printed_step_s": 0.1}, BOTH),
        ({"steps_per_epoch": 50, "samples_per_epoch": 396}, BOTH),
        ({"printed_steps_per_epoch": 50}, {"steps"}),
        ({"printed_steps_per_epoch": 50, "printed_samples_per_epoch": 900}, set()),
        ({"by_construction": "the recorder"}, BOTH),
    ],
)
def test_what_agrees_confirms_steps_or_samples_or_both(
    more: dict[str, Any], confirms: set[str]
) -> None:
    proof = _proof.prove(_proof.Facts(**(FACTS | more)))
    assert (proof.against, proof.confirms, proof.proved) == (None, confirms, confirms == BOTH)
    assert proof.text.startswith("proved by" if proof.proved else "read, not proved")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            {"printed_rate": 40.0, "workers": 2, "whole_s": 10.0, "counts_samples": True},
            ["40", "80", "rate_of: worker"],
        ),
        ({"printed_rate": 10.0}, ["10", "80", "steps per s"]),
        ({"printed_rate": 640.0}, ["640", "80", "fewer samples, or epochs"]),
        ({"printed_rate": 5000.0}, ["5000", "80", "key sample"]),
        ({"printed_step_s": 0.2, "workers": 2}, ["0.2", "0.1", "all ranks"]),
        ({"printed_samples_per_step": 96.0}, ["96", "8"]),
        ({"printed_batch": 64}, ["64", "8"]),
        ({"steps_per_epoch": 600, "samples_per_epoch": 600}, ["600", "75"]),
    ],
)
def test_a_contradiction_has_both_numbers_and_a_reason(
    more: dict[str, Any], says: list[str]
) -> None:
    proof = _proof.prove(_proof.Facts(**(FACTS | more)))
    assert proof.against is not None and not proof.proved
    assert [word for word in says if word not in proof.against] == []


def ends(*times: float, every: int = 1) -> list[StepEnd]:
    return [StepEnd(at_s, every * n) for n, at_s in enumerate(times)]


def test_lines_that_come_in_bursts_have_no_times_of_their_own() -> None:
    """40 lines of steps of 0.1 s, kept back until 10 are there."""
    came = ends(*[1.0 + n // 10 for n in range(40)])
    placed, bursts = _counting.in_bursts(came)
    assert bursts == [9, 19, 29, 39]
    took = [b.time_s - a.time_s for a, b in itertools.pairwise(placed)]
    assert took == pytest.approx([0.1] * 39)
    assert _counting.told_steps(_counting.Numbering(placed), bursts) == [[9, 1], [10, 3]]
    one_by_one = ends(*[0.1 * n for n in range(40)])
    assert _counting.in_bursts(one_by_one) == (one_by_one, [])
    with pytest.raises(UnreadError, match="40 lines came in 2 bursts"):
        _counting.in_bursts(ends(*[1.0 + n // 20 for n in range(40)]))


@pytest.mark.parametrize(
    ("gaps", "pause_s", "doubt"),
    [
        ({}, 0.0, False),
        ({50: 4.0}, 4.0, False),
        ({50: 2.0, 70: 2.0}, 0.0, False),  # slow steps, which count
        ({20: 4.0, 40: 4.0, 60: 4.0, 80: 4.0}, 16.0, False),
        (
            dict.fromkeys(range(3, 100, 4), 4.0),
            0.0,
            True,
        ),  # a loader with four workers looks like that
    ],
)
def test_gaps_are_pauses_where_they_are_rare(
    gaps: dict[int, float], pause_s: float, doubt: bool
) -> None:
    at_s, times = 0.0, []
    for n in range(100):
        at_s += 1.0 + gaps.get(n, 0.0)
        times.append(at_s)
    parts, said = _pauses.intervals(_counting.Numbering(ends(*times)))
    assert sum(part.pause_s for part in parts) == pytest.approx(pause_s)
    assert bool(said) is doubt


def test_slow_steps_beside_a_printed_time_of_a_step_are_pauses(tmp_path: Path) -> None:
    """Each fifth line is late by a checkpoint: the program's own time of a step says that it is
    none.
    """
    at_s, printed = 0.0, []
    for n in range(40):
        at_s += 1.0 + (3.0 if n % 5 == 4 else 0.0)
        printed.append(Line(at_s, f"step {n} time: 1.0 s"))
    run = spec(tmp_path, patterns=(r"step (?P<step>\d+)",))
    made = lines.read(Output(run, tmp_path, tmp_path, printed))
    assert sum(row.took_s for row in made.rows) == pytest.approx(39.0)
    assert made.remarks["pauses"]["seconds"] == pytest.approx(24.0)  # type: ignore[index]
    assert max(row.end_s for row in made.rows) == pytest.approx(63.0)


@pytest.mark.parametrize(
    ("told", "unit", "percent", "are"),
    [
        ([0.2, 41.2], None, False, [0.002, 0.412]),
        ([0.412], None, False, [None]),
        ([0.412], "percent", False, [0.00412]),
        ([0.412], "fraction", False, [0.412]),
        ([0.412], None, True, [0.412]),
    ],
)
def test_accuracies_are_fractions_or_left_out(
    told: list[float], unit: str | None, percent: bool, are: list[float | None]
) -> None:
    made = as_fractions([Evaluation(1.0, one) for one in told], unit, percent)
    assert [one.top1 for one in made] == [
        None if one is None else pytest.approx(one) for one in are
    ]


def test_a_fraction_above_1_is_refused() -> None:
    with pytest.raises(UnreadError, match=r"41.2.*fraction"):
        as_fractions([Evaluation(1.0, 41.2)], "fraction")
