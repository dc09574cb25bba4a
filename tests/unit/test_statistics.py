"""Warm-up, intervals, verdicts and drift, on numbers whose truth is known. `bench/intervals.py`
does it 2000 times.
"""

import importlib.util
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ddlbench.analysis import intervals, outliers, significance, times
from ddlbench.analysis.drift import drift
from ddlbench.analysis.significance import CANNOT_TELL, FASTER, SLOWER
from ddlbench.analysis.warm_up import warm_up
from ddlbench.core.step_rows import STEP_PARTS

from tests.facts import refuses

BENCH = Path(__file__).resolve().parents[2] / "bench/intervals.py"


@pytest.fixture(scope="module")
def bench() -> Any:
    described = importlib.util.spec_from_file_location("intervals", BENCH)
    assert described and described.loader
    module = importlib.util.module_from_spec(described)
    sys.modules["intervals"] = module
    described.loader.exec_module(module)
    return module


def steps_of(warm: float, count: int = 300, seed: int = 1) -> np.ndarray[Any, Any]:
    noise = np.random.default_rng(seed).normal(0, 0.02, count)
    return np.asarray(0.1 * np.exp(noise) * (1 + 2 * np.exp(-np.arange(count) / warm)))


@pytest.mark.parametrize(
    ("warm", "least", "most"), [(0.01, 1, 60), (3, 5, 60), (10, 20, 90), (30, 60, 300)]
)
def test_what_is_cut_is_the_warm_up(warm: float, least: int, most: int) -> None:
    runs = [steps_of(warm, 600 if warm == 30 else 300, seed) for seed in range(20)]
    cuts = [warm_up(run) for run in runs]
    assert least <= np.median([cut for cut, _ in cuts]) <= most
    assert sum(steady for _, steady in cuts) >= 18
    left = [run[cut:].mean() for run, (cut, _) in zip(runs, cuts, strict=True)]
    assert np.median(left) == pytest.approx(0.1, rel=0.01)


def test_a_stall_is_no_warm_up_and_stays_in_every_measure() -> None:
    quiet = steps_of(0.01, 41)[1:]
    stalled = quiet.copy()
    stalled[17] = 5.0  # the best cut of a plain MSER would be right behind it
    assert warm_up(stalled)[0] == warm_up(quiet)[0] < 17
    assert (outliers.stalls(quiet), outliers.stalls(stalled)) == (0, 1)


def test_a_run_that_never_becomes_steady_says_so() -> None:
    assert warm_up(np.linspace(2, 1, 100)) == (50, False)
    assert warm_up(np.full(100, 0.1)) == (1, True)
    assert warm_up([1.0]) == (1, False)
    assert warm_up([6, 6, 1, 1])[0] == 2


@pytest.mark.parametrize("bad", [[], [0.0, 0.0], [1.0, math.nan], [1.0, -1.0], [math.inf]])
def test_times_that_cannot_be_are_refused(bad: list[float]) -> None:
    with refuses(ValueError, "finite"):
        warm_up(bad)
    with pytest.raises(ValueError, match="above 0"):
        intervals.over_repeats(bad)


def test_a_step_takes_as_long_as_on_its_slowest_rank() -> None:
    """Whichever rank that is, and whatever part of its step."""
    steps = pd.DataFrame(0.0, index=range(4), columns=[*STEP_PARTS])
    steps["step"] = [0, 0, 1, 1]
    steps["forward_s"] = [1.0, 2.0, 1.0, 0.5]
    steps["data_wait_s"] = [0.5, 0.25, 3.0, 0.25]
    assert times.step_s(steps).to_dict() == {0: 2.25, 1: 4.0}


def cut(series: list[float], an_epoch: int) -> tuple[int, int]:
    made = times.cut(pd.Series(series), an_epoch)
    return made.warm_up, made.steps


def test_whole_epochs_count_where_there_are_several() -> None:
    epoch = [3.0] + [1.0] * 9  # a start that waits for the loader
    assert cut([9, 8, 7, 1, 1, 1, 1, 1, 1, 1] + 3 * epoch, 10) == (3, 10)
    assert cut(4 * epoch, 10) == (1, 10)  # starts of later epochs are no warm-up
    assert cut([9.0] * 12 + [1.0] * 8 + 3 * epoch, 10) == (
        12,
        20,
    )  # warm-up that lasts longer than an epoch
    assert cut([9, 8, 7, 1, 1, 1, 1, 1, 1, 1], 10) == (3, 3)  # one epoch: the steps after warm-up
    assert cut([5.0, 1.0], 1) == (1, 1) and cut([5.0], 1) == (1, 1)
    assert cut([0.0, 0.0, 0.0], 3) == (1, 1)


def test_of_a_program_whole_lines_are_cut() -> None:
    """Steps between two lines share a mean: they are one value, and MSER-5 counts lines."""

    def lines(*mean_s: float, every: int = 10) -> times.Cut:
        steps = pd.Series([one for one in mean_s for _ in range(every)])
        return times.cut(steps, len(steps), [every] * len(mean_s))

    assert lines(5.0, 4.0, *[1.0, 1.01] * 20) == times.Cut(20, 20, True)
    assert lines(1.0, 1.2, 0.9, 1.1, 0.9) == times.Cut(10, 10, None)
    assert lines(1.0) == times.Cut(0, 0, False)
    assert lines(*[1.0, 0.99] * 30, every=3).steps % 3 == 0
    uneven = pd.Series([9.0] * 7 + [1.0] * 12)
    assert times.cut(uneven, 19, [7, 4, 4, 4, 4]).steps == 7
    assert times.cut(pd.Series([9.0, 1, 1, 1]), 4, [1] * 4) == times.cut(
        pd.Series([9.0, 1, 1, 1]), 4
    )


def test_few_repeats_have_students_interval_and_one_has_none() -> None:
    three = intervals.over_repeats([90, 100, 110])
    logs = np.log([90, 100, 110])
    width = 4.302653 * logs.std(ddof=1) / math.sqrt(3)  # from a table of t
    assert (three.middle, three.n) == (pytest.approx(100), 3)
    assert (three.low, three.high) == pytest.approx(
        tuple(np.exp(logs.mean() + s * width) for s in (-1, 1)), rel=1e-6
    )
    assert intervals.over_repeats([7.0]) == intervals.Interval(pytest.approx(7.0), None, None, 1)


def test_many_repeats_have_the_interval_of_order_statistics_and_five_their_stretched_range() -> (
    None
):
    # n = 10: between the interval from the 2nd to the 9th value (97.9 %) and that from the 3rd to
    # the 8th (89.1 %).
    values = list(np.exp(np.arange(1.0, 11.0)))
    share = (0.978516 - 0.95) / (0.978516 - 0.890625)
    weight = 8 * share / (2 + 6 * share)
    ten = intervals.over_repeats(values)
    assert ten.low and math.log(ten.low) == pytest.approx(2 + weight, abs=1e-4)
    assert ten.high and math.log(ten.high) == pytest.approx(9 - weight, abs=1e-4)
    values[-1] = 1e9  # one wild run
    assert intervals.over_repeats(values).high == pytest.approx(ten.high)
    five = intervals.over_repeats([math.exp(x) for x in (0.0, 0.3, 0.4, 0.5, 1.0)])
    assert (math.log(five.low or 0), math.log(five.high or 0)) == (
        pytest.approx(-0.03),
        pytest.approx(1.03),
    )


def test_a_verdict_needs_an_interval_without_one() -> None:
    slow, fast = {1: 100.0, 2: 101.0, 3: 99.0}, {1: 120.0, 2: 121.0, 3: 119.5}
    assert significance.ratio(fast, slow).verdict == FASTER
    assert significance.ratio(slow, fast).verdict == SLOWER
    assert significance.ratio(slow, fast, more_is_better=False).verdict == FASTER  # they are times
    near = significance.ratio(slow, {1: 101.0, 2: 100.0, 3: 100.5})
    assert near.verdict == CANNOT_TELL and near.more
    there, back = significance.ratio(fast, slow), significance.ratio(slow, fast)
    assert (there.low, there.high) == (
        pytest.approx(1 / (back.high or 0)),
        pytest.approx(1 / (back.low or 0)),
    )


def test_pairs_are_repeats_of_the_same_number() -> None:
    drifting = {n: 100.0 / n for n in range(1, 5)}
    ahead = {n: 1.03 * value * (1 + 0.001 * n) for n, value in drifting.items()} | {9: 1e9}
    paired = significance.ratio(ahead, drifting)
    assert (paired.n, paired.verdict) == (4, FASTER)
    alone = significance.ratio({1: 90.0}, {1: 30.0})
    assert (alone.middle, alone.low, alone.verdict, alone.more) == (
        pytest.approx(3),
        None,
        CANNOT_TELL,
        None,
    )
    none = significance.ratio({1: 90.0, 2: 90.0}, {3: 30.0})
    assert (none.middle, none.low, none.verdict) == (pytest.approx(3), None, CANNOT_TELL)
    assert significance.ratio(drifting, drifting).verdict == CANNOT_TELL
    assert significance.ratio(drifting, drifting).more is None
    with pytest.raises(ValueError, match="both sides"):
        significance.ratio({}, drifting)


def pair(*logs: float) -> significance.Comparison:
    return significance.ratio(dict(enumerate(np.exp(logs))), dict.fromkeys(range(len(logs)), 1.0))


def test_two_pairs_tell_nothing_and_no_width_is_below_the_machines_noise() -> None:
    assert pair(0.5, 0.5).verdict == CANNOT_TELL and pair(0.5, 0.5).more == 1
    near = pair(0.0001, 0.0001, 0.0001)
    assert near.verdict == CANNOT_TELL and (near.low or 1) < 1 < (near.high or 1)
    assert pair(0.5, 0.5, 0.5).verdict == FASTER


def test_many_comparisons_are_judged_at_once() -> None:
    """Alone, one of 90 that agrees by chance is told, and three that are 7 % apart are not told
    from it.
    """
    rng = np.random.default_rng(4)
    equal = [pair(*rng.normal(0, 0.014, 3)) for _ in range(86)]
    by_chance = pair(0.0099, 0.01, 0.0101)
    planted = [pair(*(0.07 + rng.normal(0, 0.014, 3))) for _ in range(3)]
    alone = [one.verdict != CANNOT_TELL for one in (by_chance, *equal)]
    assert alone[0] and sum(alone) > 1
    judged = significance.control_false_discoveries([by_chance, *equal, *planted])
    assert {one.verdict for one in judged[:-3]} == {CANNOT_TELL}
    assert {one.verdict for one in judged[-3:]} == {FASTER}
    assert all((one.low or 0) <= 1 <= (one.high or 0) for one in judged[:-3])
    assert all((one.low or 0) > 1 for one in judged[-3:])
    assert {
        one.verdict for one in significance.control_false_discoveries(planted, more_is_better=False)
    } == {SLOWER}
    (one,) = significance.control_false_discoveries(planted[:1])
    assert one == planted[0]
    assert significance.control_false_discoveries([]) == []


def test_as_many_more_repeats_as_are_said_are_enough() -> None:
    rng = np.random.default_rng(1)
    for effect, known in ((0.04, 3), (0.012, 3), (0.012, 8)):
        # Differences whose median and spread are exactly as planted, so that what is said is exact.
        logs = np.linspace(-1, 1, known)
        logs = effect + 0.02 * logs / logs.std(ddof=1)
        more = pair(*logs).more
        assert more is not None
        told = [
            pair(*row).verdict == FASTER for row in rng.normal(effect, 0.02, (200, known + more))
        ]
        assert 0.7 <= np.mean(told) <= 0.97


def test_a_difference_that_repeats_are_said_to_show_is_told_in_four_of_five_studies() -> None:
    rng = np.random.default_rng(1)
    assert significance.detectable_ratio(2, 0.02) is None
    few, more = significance.detectable_ratio(3, 0.02), significance.detectable_ratio(4, 0.02)
    assert few and more and 1.02 < more < few
    for n, ratio in ((3, few), (4, more)):
        logs = math.log(ratio) + 0.02 * math.sqrt(2) * rng.normal(size=(1000, n))
        assert np.mean([pair(*row).verdict == FASTER for row in logs]) == pytest.approx(
            significance.POWER, abs=0.04
        )
    stricter = significance.detectable_ratio(3, 0.02, comparisons=3)
    assert stricter and stricter > few


def test_quantiles_are_those_of_scipy_stats() -> None:
    """Which is not imported there: it takes most of a second, and every run and every figure would
    wait for it.
    """
    from scipy import stats

    for free in (1, 2, 3, 20):
        assert intervals.student_t(0.96, free) == pytest.approx(stats.t.ppf(0.98, free), rel=1e-9)
    code = (
        "import sys, ddlbench.analysis.summary; assert 'pandas' in sys.modules and 'scipy.stats'"
        " not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_drift_beyond_noise_is_reported() -> None:
    cells, when = [1, 1, 1, 2, 2, 2], [0.0, 50.0, 100.0, 10.0, 60.0, 90.0]
    level = np.array([1, 1, 1, 5, 5, 5]) * np.exp(-0.001 * np.array(when))
    noise = np.array([1, 1.001, 0.999, 1.001, 1, 0.999])
    seen = drift(cells, when, level * noise)
    assert seen and seen.beyond_noise and seen.low < math.exp(-0.1) < seen.high < 1
    still = drift(
        cells, when, np.array([1, 1, 1, 5, 5, 5]) * (1 + np.array([1, -2, 1, 1, -2, 1]) / 100)
    )
    assert still and not still.beyond_noise
    assert drift([1, 2, 3], [0, 1, 2], [1, 2, 3]) is None  # no repeats
    assert drift([1, 1, 1, 1], [5, 5, 5, 5], [1, 2, 3, 4]) is None  # no time between
    assert drift([], [], []) is None


def test_intervals_hold_the_truth(bench: Any) -> None:
    """The small sister of `bench/intervals.py`: levels of runs only, 300 studies."""
    rng = np.random.default_rng(3)
    for study in (one for one in bench.STUDIES if one.judged):
        true = math.exp(float(np.median(study.levels(rng, 100_000))))
        for n in (2, 3, 5):  # two have no verdict
            held = false = 0
            for _ in range(300):
                a, b = (np.exp(study.levels(rng, n)) for _ in range(2))
                alone = intervals.over_repeats(list(a))
                held += (alone.low or 0) <= true <= (alone.high or 0)
                false += (
                    significance.ratio(dict(enumerate(a)), dict(enumerate(b))).verdict
                    != CANNOT_TELL
                )
            assert 0.905 <= held / 300 <= 0.985, (study.name, n)
            assert false / 300 <= 0.07, (study.name, n)


# Values by hand


def steps(count: int, slow: int, rate: float = 2.0) -> list[float]:
    return [rate] * slow + [1.0] * (count - slow)


@pytest.mark.parametrize(
    ("series", "cut", "steady"),
    [
        (steps(49, 3), 3, True),  # step by step
        (steps(50, 3), 5, True),  # five steps at once
        (steps(52, 3), 7, True),  # the odd ones are the first
        (steps(52, 0), 1, True),
        (steps(54, 0), 1, True),
        (steps(20, 8), 8, True),
        (steps(20, 9), 9, False),  # in the last tenth of what may be cut
        (steps(20, 10), 10, False),
        (steps(100, 40), 40, True),
        (steps(100, 45), 45, False),
        ([1.0, 1.0], 1, True),
        ([2.0, 1.0], 1, False),
    ],
)
def test_so_many_steps_are_warm_up(series: list[float], cut: int, steady: bool) -> None:
    assert warm_up(series) == (cut, steady)


@pytest.mark.parametrize(
    ("series", "count"),
    [
        ([1.0] * 9 + [1.1], 0),  # by 10 % of the median
        ([1.0] * 9 + [1.11], 1),
        ([10.0] * 9 + [11.5], 1),
        ([1.0, 2.0, 3.0, 4.0, 10.0], 0),  # three times 4 - 2 beyond 4
        ([1.0, 2.0, 3.0, 4.0, 10.1], 1),
        ([0.0, 0.0, 0.0, 0.0, 0.1], 1),
    ],
)
def test_so_many_steps_are_outliers(series: list[float], count: int) -> None:
    assert outliers.stalls(series) == count


def exp(*logs: float) -> list[float]:
    return [math.exp(log) for log in logs]


def log_of(interval: intervals.Interval) -> tuple[float, float, float]:
    assert interval.low is not None and interval.high is not None
    return math.log(interval.low), math.log(interval.middle), math.log(interval.high)


@pytest.mark.parametrize(
    ("logs", "noise", "low", "middle", "high"),
    [
        (
            (0.0, 0.0),
            0.0005,
            -12.7062 * 0.0005 / math.sqrt(2),
            0.0,
            12.7062 * 0.0005 / math.sqrt(2),
        ),
        ((0.0, 0.0), 0.0, 0.0, 0.0, 0.0),
        ((0.0, 2.0), 0.0005, 1 - 12.7062 * 1.12, 1.0, 1 + 12.7062 * 1.12),  # a spread of sqrt(2)
        (
            (0.0, 1.0, 2.0, 3.0),
            0.0,
            1.5 - 3.18245 * math.sqrt(5 / 12),
            1.5,
            1.5 + 3.18245 * math.sqrt(5 / 12),
        ),
        ((0.0, 0.0, 0.0), 0.3, -4.30265 * 0.3 / math.sqrt(3), 0.0, 4.30265 * 0.3 / math.sqrt(3)),
        # Of 6 the range holds the median in 96.875 %, what is between the second and the fifth in
        # 78.125 %.
        ((5.0, 1.0, 2.0, 3.0, 4.0, 0.0), 0.0, 0.5 / 1.4, 2.5, 5 - 0.5 / 1.4),
        # Of 7: 98.4375 and 87.5 %.
        (
            (0, 1, 2, 3, 4, 5, 6),
            0.0,
            6 * 0.3142857 / (1 + 5 * 0.3142857),
            3,
            6 - 6 * 0.3142857 / (1 + 5 * 0.3142857),
        ),
        # Of 9: 96.09375 (k = 2) and 82.03125 %.
        (
            range(9),
            0.0,
            1 + 7 * 0.0777778 / (2 + 5 * 0.0777778),
            4,
            7 - 7 * 0.0777778 / (2 + 5 * 0.0777778),
        ),
    ],
)
def test_intervals_by_hand(
    logs: tuple[float, ...], noise: float, low: float, middle: float, high: float
) -> None:
    seen = intervals.over_repeats(exp(*logs), noise)
    assert log_of(seen) == pytest.approx((low, middle, high), rel=1e-4, abs=1e-9)
    assert seen.n == len(logs)


@pytest.mark.parametrize(
    ("logs", "one_of", "verdict"),
    [
        # Three pairs with spread 0.01: 4.8487 errors of 0.01 / sqrt(3) are 0.028, 15.769 are 0.091.
        ((0.0185, 0.0285, 0.0385), 1, FASTER),
        ((0.0175, 0.0275, 0.0375), 1, CANNOT_TELL),
        ((-0.0185, -0.0285, -0.0385), 1, SLOWER),
        ((0.0185, 0.0285, 0.0385), 2, CANNOT_TELL),
        ((0.082, 0.092, 0.102), 10, FASTER),
        ((0.080, 0.090, 0.100), 10, CANNOT_TELL),
        # Five pairs: their range, stretched by 8 % at each end.
        ((0.081, 0.5, 0.5, 0.5, 1.081), 1, FASTER),
        ((0.079, 0.5, 0.5, 0.5, 1.079), 1, CANNOT_TELL),
        # Six: 96.875 beside 96 %, so 0.19663 of the way from the first to the second.
        ((-0.190, 0.8, 0.8, 0.8, 0.8, 0.8), 1, FASTER),
        ((-0.200, 0.8, 0.8, 0.8, 0.8, 0.8), 1, CANNOT_TELL),
    ],
)
def test_verdicts_at_their_edge(logs: tuple[float, ...], one_of: float, verdict: str) -> None:
    seen = significance.ratio(
        dict(enumerate(exp(*logs))), dict.fromkeys(range(len(logs)), 1.0), True, one_of
    )
    assert seen.verdict == verdict
    assert (seen.mean, seen.spread) == (
        pytest.approx(np.mean(logs)),
        pytest.approx(np.std(logs, ddof=1)),
    )
    assert (seen.more == 0) == (verdict != CANNOT_TELL)
    if one_of == 1:
        minus = significance.difference(dict(enumerate(logs)), dict.fromkeys(range(len(logs)), 0.0))
        assert minus.verdict == verdict
        assert (minus.mean, minus.middle) == (
            pytest.approx(seen.mean),
            pytest.approx(math.log(seen.middle)),
        )
        assert log_of(seen) == pytest.approx(
            (minus.low, minus.middle, minus.high), abs=1e-3
        )  # but for NOISE


def test_the_chance_of_a_verdict_is_that_of_the_t_test() -> None:
    from scipy import stats

    for logs in ((0.02, 0.03, 0.04), (-0.5, -0.6, -0.7, -0.55), (0.9, 1.0, 1.1, 1.2, 1.3, 1.4)):
        assert pair(*logs).p == pytest.approx(stats.ttest_1samp(logs, 0).pvalue)
    assert pair(0.01, 0.03, 0.05).p == 1.0  # none
    # Order statistics may be sure where the t test is not.
    assert pair(0.1, 0.1, 0.1, 0.1, 0.1, 20.0).p == pytest.approx(0.04)
    assert significance.difference({1: 1.0, 2: 1.0, 3: 1.0}, {1: 0.0, 2: 0.0, 3: 0.0}).p == 0.0


def test_sides_without_pairs_are_two_samples() -> None:
    """Spreads 0.1 and 0.2: an error of sqrt(0.01 / 3 + 0.04 / 4) with the 2 degrees of freedom of
    the smaller side.
    """
    left, right = (0.9, 1.0, 1.1), (-0.2449490, 0.0, 0.0, 0.2449490)
    error = math.sqrt(0.01 / 3 + 0.04 / 4)
    plain = significance.difference(dict(enumerate(left)), dict(enumerate(right, 10)))
    assert (plain.low, plain.middle, plain.high) == pytest.approx(
        (1 - 4.30265 * error, 1.0, 1 + 4.30265 * error)
    )
    assert (plain.n, plain.verdict, plain.mean) == (3, FASTER, pytest.approx(1.0))
    assert plain.spread == pytest.approx(error * math.sqrt(3))
    t = 1 / error
    assert plain.p == pytest.approx(
        1 - t / math.sqrt(2 + t * t)
    )  # Student's t of 2 degrees of freedom, both tails
    rates = significance.ratio(dict(enumerate(exp(*left))), dict(enumerate(exp(*right), 10)))
    assert log_of(rates) == pytest.approx((plain.low, 1.0, plain.high))
    assert (rates.verdict, rates.more, rates.n) == (FASTER, 0, 3)
    times = significance.ratio(
        dict(enumerate(exp(*left))), dict(enumerate(exp(*right), 10)), more_is_better=False
    )
    assert times.verdict == SLOWER
    assert significance.ratio(
        dict(enumerate(exp(*left))), dict(enumerate(exp(*right), 10)), True, 10
    ).verdict == (CANNOT_TELL)


def test_two_samples_of_few_runs_tell_nothing() -> None:
    two = significance.difference({1: 5.0, 2: 5.1}, {3: 0.0, 4: 0.1, 5: 0.0})
    assert (two.n, two.verdict, two.low is None) == (2, CANNOT_TELL, False)
    one = significance.difference({1: 5.0}, {3: 0.0, 4: 0.1, 5: 0.0})
    assert (one.n, one.verdict, one.low, one.high, one.middle) == (1, CANNOT_TELL, None, None, 5.0)
    alike = significance.difference({1: 5.0, 2: 5.0, 3: 5.0}, {4: 1.0, 5: 1.0, 6: 1.0})
    width = 4.30265 * intervals.NOISE * math.sqrt(2 / 3)
    assert (alike.low, alike.high) == (pytest.approx(4 - width), pytest.approx(4 + width))
    near = significance.ratio({1: 1.0, 2: 1.2, 3: 0.9}, {4: 1.1, 5: 1.0, 6: 1.05})
    assert near.verdict == CANNOT_TELL and near.more is not None and near.more > 0
    with pytest.raises(ValueError, match="both sides"):
        significance.difference({1: 1.0}, {})


def seen(effect: float, n: int, spread: float) -> significance.Comparison:
    return significance.Comparison(math.exp(effect), None, None, n, spread=spread)


@pytest.mark.parametrize(
    ("effect", "n", "spread", "one_of", "more"),
    [
        (0.1, 2, math.nan, 1, None),
        (0.1, 2, 0.0, 1, 1),  # three are the fewest
        (0.1, 3, 0.0, 1, 1),
        (0.0, 2, 0.0, 1, None),
        (0.0, 3, 0.1, 1, None),
        # Of three pairs t = 4.8487 is met with a chance of 80 % from a lead of 3.9 spreads on, of
        # four from 2.5 on.
        (0.4, 2, 0.1, 1, 1),
        (0.3, 2, 0.1, 1, 2),
        (-0.3, 2, 0.1, 1, 2),
        (0.3, 3, 0.1, 1, 1),
        # Beyond four 1.5708 (2.0537 + 0.8416)^2 = 13.17 spreads squared, but five at least.
        (0.2, 2, 0.1, 1, 3),
        (0.1, 2, 0.1, 1, 12),
        (0.1, 3, 0.1, 1, 11),
        (0.1, 20, 0.1, 1, 1),
        (0.1, 3, 0.1, 10, 19),  # 1.5708 (2.8782 + 0.8416)^2 = 21.73
        (0.00364, 3, 0.1, 1, 9936),
        (0.0036, 3, 0.1, 1, None),  # nobody makes 10160
        (0.001, 3, 0.1, 1, None),
        (1e-300, 3, 0.1, 1, None),
    ],
)
def test_more_repeats_by_hand(
    effect: float, n: int, spread: float, one_of: float, more: int | None
) -> None:
    assert significance.more_repeats(seen(effect, n, spread), one_of) == more


def test_more_repeats_where_other_pairs_say_how_runs_vary() -> None:
    """Means then take the place of medians: (2.0537 + 0.8416)^2 = 8.38."""
    assert significance.more_repeats(seen(0.1, 3, 0.1), 1, 2.0) == 6
    assert significance.more_repeats(seen(0.1, 3, 0.1), 1, 1.0) == 11
    assert significance.more_repeats(seen(0.1, 3, 0.5), 1, 2.0, spread=0.1) == 6
    assert (
        significance.more_repeats(seen(0.2, 2, 0.1), 1, 10.0) == 1
    )  # of three pairs with 12 degrees of freedom


def by_line(cells: list[int], when: list[float], logs: list[float]) -> tuple[float, float, int]:
    """Slope and its error by least squares, with a level for each cell; and the degrees of
    freedom.
    """
    levels = [[float(cell == one) for one in sorted({*cells})] for cell in cells]
    x = np.column_stack([(np.array(when) - min(when)) / (max(when) - min(when)), np.array(levels)])
    fit, *_ = np.linalg.lstsq(x, np.array(logs), rcond=None)
    free = len(cells) - x.shape[1]
    left = np.array(logs) - x @ fit
    return float(fit[0]), math.sqrt(left @ left / free * np.linalg.inv(x.T @ x)[0, 0]), free


@pytest.mark.parametrize(
    ("moved", "beyond"), [(-0.1, True), (0.1, True), (-0.035, True), (-0.02, False)]
)
def test_a_drift_is_the_slope_of_least_squares(moved: float, beyond: bool) -> None:
    from scipy import stats

    cells, when = [1, 2, 1, 2, 1, 2, 1], [100.0, 110.0, 130.0, 150.0, 160.0, 190.0, 200.0]
    noise = [0.003, -0.004, 0.001, 0.006, -0.008, 0.002, 0.0]
    logs = [
        cell + moved * (t - 100) / 100 + n for cell, t, n in zip(cells, when, noise, strict=True)
    ]
    slope, error, free = by_line(cells, when, logs)
    found = drift(cells, when, np.exp(logs))
    assert found is not None and found.n == 7 and free == 4
    width = stats.t.ppf(0.975, free) * error
    assert (found.ratio, found.low, found.high) == pytest.approx(
        tuple(exp(slope, slope - width, slope + width))
    )
    assert found.beyond_noise == beyond == (abs(slope) > stats.t.ppf(0.995, free) * error)


def test_a_drift_needs_three_runs_beyond_one_per_cell() -> None:
    assert drift([1, 1, 1], [0, 1, 2], [1, 2, 3.1]) is None
    assert drift([1, 1, 1, 1], [0, 1, 2, 3], [1, 2, 3.1, 4]) is not None
    assert (
        drift([1, 1, 2, 2, 3, 3], [0, 0, 1, 1, 2, 2], [1, 2, 3, 4, 5, 6]) is None
    )  # at the same time
    with pytest.raises(ValueError, match="each run"):
        drift([1, 1, 1, 1], [0, 1, 2], [1, 2, 3, 4])


# Comparisons that are read together, by hand


def three(middle: float, spread: float) -> significance.Comparison:
    """A ratio of three pairs with this mean and standard deviation of logarithms."""
    return pair(middle - spread, middle, middle + spread)


def lead(p: float, free: float, error: float) -> float:
    """The mean whose two-sided chance is this, where both sides are equal."""
    from scipy import stats

    return float(stats.t.ppf(1 - p / 2, free)) * error


# Of two pairs with spreads 0.01 and 0.03 the larger one counts: three quarters of it, and 0.7 pairs
# more.
ERRORS = 0.75 * 0.03 / math.sqrt(3), 0.03 / math.sqrt(3)
FREE = 2.7


@pytest.mark.parametrize(
    ("chances", "told", "share"),
    [
        ((0.019, 0.5), (True, False), 0.5),
        ((0.021, 0.5), (False, False), 0.0),
        ((0.039, 0.038), (True, True), 1.0),  # both are below 4 %
        ((0.041, 0.038), (False, False), 0.0),
        ((0.041, 0.019), (False, True), 0.5),
    ],
)
def test_a_small_table_by_hand(
    chances: tuple[float, float], told: tuple[bool, bool], share: float
) -> None:
    """One of two differs significantly at 2 %, both at 4 %."""
    means = [lead(p, FREE, error) for p, error in zip(chances, ERRORS, strict=True)]
    table = [three(means[0], 0.01), three(-means[1], 0.03)]
    judged = significance.control_false_discoveries(table)
    assert [one.verdict for one in judged] == [
        verdict if apart else CANNOT_TELL
        for verdict, apart in zip((FASTER, SLOWER), told, strict=True)
    ]
    for before, one, error, apart in zip(table, judged, ERRORS, told, strict=True):
        if apart:
            width = lead(0.05 * share, FREE, error)
            assert log_of(one) == pytest.approx(
                (before.mean - width, before.mean, before.mean + width)
            )
            assert one.more == 0
        else:
            assert before.low is not None and before.high is not None
            assert (one.low, one.high) == (min(before.low, 1.0), max(before.high, 1.0))
            assert one.more == significance.more_repeats(
                before, 1 / share if share else 2, 0.7, error * math.sqrt(3)
            )
    fewer = [
        one.verdict for one in significance.control_false_discoveries(table, more_is_better=False)
    ]
    assert fewer == [
        {FASTER: SLOWER, SLOWER: FASTER}.get(one.verdict, CANNOT_TELL) for one in judged
    ]


def test_pairs_that_are_too_few_are_in_no_table() -> None:
    """They are neither significantly different nor do they count among those that are tried."""
    table = [three(lead(0.039, 2, 0.01 / math.sqrt(3)), 0.01), pair(5.0, 5.1), pair(5.0)]
    alone, two, one = significance.control_false_discoveries(table)
    assert alone == table[0] and alone.verdict == FASTER
    assert (two.verdict, one.verdict) == (CANNOT_TELL, CANNOT_TELL)
    assert two.low is not None and two.low <= 1 < (two.high or 0)
    assert (two.more, one.more) == (1, None)
    assert (one.low, one.high) == (None, None)


@pytest.mark.parametrize(("p", "verdict"), [(0.019, FASTER), (0.021, CANNOT_TELL)])
def test_of_many_repeats_the_table_says_less(p: float, verdict: str) -> None:
    """Six pairs beside three of them: 0.3 of the table's spread, no further pairs, and never surer
    than alone.
    """
    error = 0.3 * 0.1 / math.sqrt(6)
    mean = lead(p, 5, error)
    steady = pair(*(mean + offset for offset in (-0.001, 0.001, -0.002, 0.002, 0.0005, -0.0005)))
    judged, _ = significance.control_false_discoveries([steady, three(0.0, 0.1)])
    assert judged.verdict == verdict
    skewed = pair(0.1, 0.1, 0.1, 0.1, 0.1, 20.0)  # order statistics alone tell it apart, at 4 %
    assert (
        significance.control_false_discoveries([skewed, three(0.0, 0.1)])[0].verdict == CANNOT_TELL
    )
    assert skewed.verdict == FASTER


def test_differences_that_are_read_together() -> None:
    """Around 0 in place of 1; differences of counts may have no spread at all."""
    flat = {1: 0.0, 2: 0.0, 3: 0.0}
    table = [
        significance.difference({1: 3.0, 2: 3.0, 3: 3.0}, flat),
        significance.difference(flat, flat),
        significance.difference({1: 0.9, 2: -1.0, 3: 1.1}, flat),
    ]
    apart, equal, unsteady = significance.control_false_discoveries(table, same=0.0)
    assert [one.verdict for one in (apart, equal, unsteady)] == [FASTER, CANNOT_TELL, CANNOT_TELL]
    assert (equal.low, equal.high, equal.more, unsteady.more) == (0.0, 0.0, None, None)
    assert (apart.low, apart.high) == (3.0, 3.0)  # two of three have no spread
    assert unsteady.low is not None and unsteady.low < 0 < (unsteady.high or 0)


def test_a_large_table_tells_how_unsteady_its_machine_is() -> None:
    """Ten pairs of one spread: each counts as if it had ten more pairs, and none of them is
    steadier than the table.
    """
    spread = 0.02
    expected = spread / math.sqrt(
        1.386294 / 2
    )  # the median of a chi squared of 2 degrees of freedom is 2 ln 2
    deviation = max(math.sqrt((10 * expected**2 + 2 * spread**2) / 12), expected)
    error = deviation / math.sqrt(3)
    for p, verdict in ((0.0039, FASTER), (0.0041, CANNOT_TELL)):  # one of ten at 0.4 %
        table = [three(lead(p, 12, error), spread), *[three(0.0, spread)] * 9]
        judged = significance.control_false_discoveries(table)
        assert [one.verdict for one in judged] == [verdict, *[CANNOT_TELL] * 9]
        if verdict == FASTER:
            width = lead(0.005, 12, error)
            wanted = (table[0].mean - width, table[0].mean, table[0].mean + width)
            assert log_of(judged[0]) == pytest.approx(wanted, rel=1e-4)
            assert judged[1].more is None  # it has no effect
    nine = significance.control_false_discoveries(table[:9])
    assert nine[0].verdict == CANNOT_TELL


@pytest.mark.parametrize(("p", "verdict"), [(0.0039, FASTER), (0.0041, CANNOT_TELL)])
def test_an_unsteady_pair_of_a_large_table_is_judged_by_its_own_spread_too(
    p: float, verdict: str
) -> None:
    others = [three(0.0, spread) for spread in (0.01, 0.02, 0.03) for _ in range(3)]
    of_all = significance.pool([*others, three(0.0, 0.09)])
    assert of_all is not None
    free, spread = of_all.free, of_all.spread
    deviation = math.sqrt((free * spread**2 + 2 * 0.09**2) / (free + 2))
    assert spread < deviation < 0.09
    unsteady = three(lead(p, free + 2, deviation / math.sqrt(3)), 0.09)
    judged = significance.control_false_discoveries([unsteady, *others])[0]
    assert judged.verdict == verdict
    if verdict == CANNOT_TELL:
        assert judged.more == significance.more_repeats(unsteady, 10, free, deviation)


@pytest.mark.parametrize(
    "spreads", [(0.01, 0.02, 0.04, 0.08), (0.01, 0.05, 0.3), (0.01, 0.011, 0.012), (1e-9, 1e-9)]
)
def test_how_far_the_spreads_of_a_table_are_alike(spreads: tuple[float, ...]) -> None:
    """The equation of Smyth 2004: trigamma of half the further pairs is what logarithms of
    variances differ by beyond their own noise.
    """
    from scipy import special

    pairs = [
        significance.Comparison(1.0, None, None, n, spread=one)
        for n in (3, 5) * 3
        for one in spreads
    ]
    of_all = significance.pool(pairs)
    assert of_all is not None
    free, middle = of_all.free, of_all.spread
    own = np.array([pair.n - 1.0 for pair in pairs])
    logs = [math.log(max(pair.spread, intervals.NOISE) ** 2) for pair in pairs]
    apart = np.var(logs - special.digamma(own / 2) + np.log(own / 2), ddof=1) - np.mean(
        special.polygamma(1, own / 2)
    )
    if free > 9.9:
        assert apart < special.polygamma(1, 5.0)
    else:
        assert special.polygamma(1, free / 2) == pytest.approx(apart, rel=0.05)
    expected = [
        max(pair.spread, intervals.NOISE) / math.sqrt(special.chdtri(n, 0.5) / n)
        for pair, n in zip(pairs, own, strict=True)
    ]
    assert middle == pytest.approx(np.median(expected))
