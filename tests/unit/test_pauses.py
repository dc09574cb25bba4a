"""What of the time between two lines counts as training, on a machine that is busy."""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from ddlbench.analysis.recorded import _confirmed
from ddlbench.run.readings import Line, Output, Reading, lines

from tests.unit.programs import spec

STEP = r"step (?P<step>\d+)"
RATE = rf"{STEP} (?P<samples_per_s>\S+) img/s"


def read(folder: Path, printed: list[Line], pattern: str = STEP) -> Reading:
    return lines.read(Output(spec(folder, patterns=(pattern,)), folder, folder, printed))


def trained_s(made: Reading) -> float:
    return sum(row.took_s for row in made.rows)


def log(
    count: int, slow: Mapping[int, float], text: str = "step {n}", noise: float = 0.02
) -> list[Line]:
    """Lines of steps of a second, some of which took longer; `{rate}` is that of the interval,
    `{mean}` that of all so far.
    """
    draw = random.Random(7)
    now, printed = 0.0, [Line(1000.0, text.format(n=0, rate=8.0, mean=8.0))]
    for n in range(1, count + 1):
        took_s = slow.get(n, 1.0) * draw.lognormvariate(0, noise)
        now += took_s
        printed.append(Line(1000 + now, text.format(n=n, rate=8 / took_s, mean=8 * n / now)))
    return printed


def whole_s(printed: list[Line]) -> float:
    return printed[-1].time_s - printed[0].time_s


@pytest.mark.parametrize(
    ("count", "slow", "is_marked"),
    [
        (10, {6: 3.8}, True),
        (24, {6: 4.0, 17: 3.5}, True),
        (12, {6: 20.0}, False),
        (200, {60: 4.0, 171: 3.8}, False),
    ],
)
def test_a_slow_interval_that_a_busy_machine_makes_is_training_or_marked(
    tmp_path: Path, count: int, slow: dict[int, float], is_marked: bool
) -> None:
    printed = log(count, slow)
    made = read(tmp_path, printed)
    if max(slow.values()) < 5:
        assert trained_s(made) == pytest.approx(whole_s(printed))
        assert "pauses" not in made.remarks
        assert ("gaps" in made.remarks) is is_marked
    else:  # it counts as a pause: what it may be is said
        assert trained_s(made) == pytest.approx(count, rel=0.03)
        assert "gaps" in made.remarks


@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_what_the_printed_rate_explains_is_training(tmp_path: Path, noise: float) -> None:
    printed = log(12, {6: 4.2}, "step {n} {rate:.4f} img/s", noise)
    made = read(tmp_path, printed, RATE)
    assert trained_s(made) == pytest.approx(whole_s(printed))
    assert {"gaps", "pauses"} & {*made.remarks} == set()
    printed = log(12, {6: 4.2}, "step {n} time: {mean:.4f} s", noise)
    assert trained_s(read(tmp_path, printed)) == pytest.approx(whole_s(printed))


def test_what_the_printed_rate_leaves_out_is_a_pause(tmp_path: Path) -> None:
    printed = log(12, {}, "step {n} {rate:.4f} img/s", 0.2)
    later = [line._replace(time_s=line.time_s + 3.5 * (n > 5)) for n, line in enumerate(printed)]
    made = read(tmp_path, later, RATE)
    assert trained_s(made) == pytest.approx(whole_s(printed), rel=0.05)
    assert "gaps" not in made.remarks


def test_a_mean_rate_since_the_start_denies_nothing(tmp_path: Path) -> None:
    printed = log(12, {6: 4.2}, "step {n} {mean:.4f} img/s", 0.1)
    made = read(tmp_path, printed, RATE)
    assert trained_s(made) == pytest.approx(whole_s(printed))


@pytest.mark.parametrize("words", ["Evaluating ...", "val_loss 0.5", "saved to ckpt-7.pt"])
def test_a_gap_in_which_the_program_says_what_it_does_is_a_pause(
    tmp_path: Path, words: str
) -> None:
    printed = log(12, {6: 4.0})
    said = [*printed[:6], Line(printed[6].time_s - 0.1, words), *printed[6:]]
    made = read(tmp_path, said)
    assert trained_s(made) == pytest.approx(12, rel=0.03)
    assert made.remarks["pauses"]["told_by"] == ["words"]  # type: ignore[index]
    assert "gaps" not in made.remarks
    other = [*printed[:6], Line(printed[6].time_s - 0.1, "latest values"), *printed[6:]]
    assert trained_s(read(tmp_path, other)) == pytest.approx(whole_s(printed))


def test_gaps_that_recur_are_pauses_and_slow_steps_between_them_are_not(tmp_path: Path) -> None:
    printed = log(89, {20: 4.0, 40: 4.0, 60: 4.0, 80: 4.0})
    made = read(tmp_path, printed)
    assert trained_s(made) == pytest.approx(89, rel=0.03)
    assert "gaps" not in made.remarks
    printed = log(89, {20: 4.0, 40: 4.0, 47: 4.0, 60: 4.0, 80: 4.0})
    assert trained_s(read(tmp_path, printed)) == pytest.approx(92, rel=0.03)
    printed = log(89, {14: 4.0, 40: 4.0, 61: 4.0, 73: 4.0})
    made = read(tmp_path, printed)
    assert trained_s(made) == pytest.approx(whole_s(printed))
    assert "gaps" in made.remarks


def test_one_long_end_of_an_epoch_among_many_is_a_slow_step(tmp_path: Path) -> None:
    pattern = r"epoch (?P<epoch>\d+) step (?P<step>\d+)"

    def printed(slow: dict[int, float]) -> list[Line]:
        return [
            line._replace(text=f"epoch {n // 5} step {n % 5}")
            for n, line in enumerate(log(49, slow))
        ]

    one = read(tmp_path, printed({25: 4.0}), pattern)
    assert trained_s(one) == pytest.approx(52, rel=0.03)
    each = read(tmp_path, printed(dict.fromkeys(range(5, 50, 5), 4.0)), pattern)
    assert trained_s(each) == pytest.approx(49, rel=0.03)


@pytest.mark.parametrize("noise", [0.1, 0.3])
@pytest.mark.parametrize("count", [12, 60])
def test_on_a_noisy_machine_the_rate_is_right_or_marked(
    tmp_path: Path, count: int, noise: float
) -> None:
    off = []
    for seed in range(8):
        draw = random.Random(seed)
        slow = {n: draw.uniform(2, 4) for n in range(1, count) if draw.random() < 0.04}
        printed = log(count, slow, noise=noise)
        made = read(tmp_path, printed)
        off.append(0.0 if "gaps" in made.remarks else whole_s(printed) / trained_s(made) - 1)
    assert max(abs(one) for one in off) <= 0.05


def test_a_run_whose_pauses_nobody_knows_is_not_confirmed() -> None:
    said = {"proved": True, "together": {"ranks": "yes"}}
    assert _confirmed(said) is True
    assert _confirmed(said | {"gaps": "3 of 20 intervals are outliers"}) is False
