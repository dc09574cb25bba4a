"""Warm-up, intervals, verdicts and drift, on numbers whose truth is known. `bench/intervals.py` does it 2000 times."""

import importlib.util
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ddlbench.analysis import statistics, times
from ddlbench.analysis.statistics import CANNOT_TELL, FASTER, SLOWER

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


@pytest.mark.parametrize(("warm", "least", "most"), [(0.01, 1, 60), (3, 5, 60), (10, 20, 90), (30, 60, 300)])
def test_what_is_cut_is_the_warm_up(warm: float, least: int, most: int) -> None:
    runs = [steps_of(warm, 600 if warm == 30 else 300, seed) for seed in range(20)]
    cuts = [statistics.warm_up(run) for run in runs]
    assert least <= np.median([cut for cut, _ in cuts]) <= most
    assert sum(steady for _, steady in cuts) >= 18
    left = [run[cut:].mean() for run, (cut, _) in zip(runs, cuts, strict=True)]
    assert np.median(left) == pytest.approx(0.1, rel=0.01)


def test_a_stall_is_no_warm_up_and_stays_in_every_measure() -> None:
    quiet = steps_of(0.01, 41)[1:]
    stalled = quiet.copy()
    stalled[17] = 5.0  # the best cut of a plain MSER would be right behind it
    assert statistics.warm_up(stalled)[0] == statistics.warm_up(quiet)[0] < 17
    assert (statistics.stalls(quiet), statistics.stalls(stalled)) == (0, 1)


def test_a_run_that_never_becomes_steady_says_so() -> None:
    assert statistics.warm_up(np.linspace(2, 1, 100)) == (50, False)
    assert statistics.warm_up(np.full(100, 0.1)) == (1, True)
    assert statistics.warm_up([1.0]) == (1, False)
    assert statistics.warm_up([6, 6, 1, 1])[0] == 2


@pytest.mark.parametrize("bad", [[], [0.0, 0.0], [1.0, math.nan], [1.0, -1.0], [math.inf]])
def test_times_that_cannot_be_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="step times must be finite"):
        statistics.warm_up(bad)
    with pytest.raises(ValueError, match="above 0"):
        statistics.over_repeats(bad)


def cut(series: list[float], an_epoch: int) -> tuple[int, int]:
    made = times.cut(pd.Series(series), an_epoch)
    return made.warm_up, made.steps


def test_whole_epochs_count_where_there_are_several() -> None:
    epoch = [3.0] + [1.0] * 9  # a start that waits for the loader
    assert cut([9, 8, 7, 1, 1, 1, 1, 1, 1, 1] + 3 * epoch, 10) == (3, 10)
    assert cut(4 * epoch, 10) == (1, 10)  # starts of later epochs are no warm-up
    assert cut([9.0] * 12 + [1.0] * 8 + 3 * epoch, 10) == (12, 20)  # warm-up that lasts longer than an epoch
    assert cut([9, 8, 7, 1, 1, 1, 1, 1, 1, 1], 10) == (3, 3)  # one epoch: the steps after warm-up
    assert cut([5.0, 1.0], 1) == (1, 1) and cut([5.0], 1) == (1, 1)
    assert cut([0.0, 0.0, 0.0], 3) == (1, 1)


def test_few_repeats_have_students_interval_and_one_has_none() -> None:
    three = statistics.over_repeats([90, 100, 110])
    logs = np.log([90, 100, 110])
    width = 4.302653 * logs.std(ddof=1) / math.sqrt(3)  # from a table of t
    assert (three.middle, three.n) == (pytest.approx(100), 3)
    assert (three.low, three.high) == pytest.approx(tuple(np.exp(logs.mean() + s * width) for s in (-1, 1)), rel=1e-6)
    assert statistics.over_repeats([7.0]) == statistics.Interval(pytest.approx(7.0), None, None, 1)


def test_many_repeats_have_the_interval_of_order_statistics_and_five_their_stretched_range() -> None:
    # n = 10: between the interval from the 2nd to the 9th value (97.9 %) and that from the 3rd to the 8th (89.1 %).
    values = list(np.exp(np.arange(1.0, 11.0)))
    share = (0.978516 - 0.95) / (0.978516 - 0.890625)
    weight = 8 * share / (2 + 6 * share)
    ten = statistics.over_repeats(values)
    assert ten.low and math.log(ten.low) == pytest.approx(2 + weight, abs=1e-4)
    assert ten.high and math.log(ten.high) == pytest.approx(9 - weight, abs=1e-4)
    values[-1] = 1e9  # one wild run
    assert statistics.over_repeats(values).high == pytest.approx(ten.high)
    five = statistics.over_repeats([math.exp(x) for x in (0.0, 0.3, 0.4, 0.5, 1.0)])
    assert (math.log(five.low or 0), math.log(five.high or 0)) == (pytest.approx(-0.03), pytest.approx(1.03))


def test_a_verdict_needs_an_interval_without_one() -> None:
    slow, fast = {1: 100.0, 2: 101.0, 3: 99.0}, {1: 120.0, 2: 121.0, 3: 119.5}
    assert statistics.ratio(fast, slow).verdict == FASTER
    assert statistics.ratio(slow, fast).verdict == SLOWER
    assert statistics.ratio(slow, fast, more_is_better=False).verdict == FASTER  # they are times
    near = statistics.ratio(slow, {1: 101.0, 2: 100.0, 3: 100.5})
    assert near.verdict == CANNOT_TELL and near.more
    there, back = statistics.ratio(fast, slow), statistics.ratio(slow, fast)
    assert (there.low, there.high) == (pytest.approx(1 / (back.high or 0)), pytest.approx(1 / (back.low or 0)))


def test_pairs_are_repeats_of_the_same_number() -> None:
    drifting = {n: 100.0 / n for n in range(1, 5)}
    ahead = {n: 1.03 * value * (1 + 0.001 * n) for n, value in drifting.items()} | {9: 1e9}
    paired = statistics.ratio(ahead, drifting)
    assert (paired.n, paired.verdict) == (4, FASTER)
    alone = statistics.ratio({1: 90.0}, {1: 30.0})
    assert (alone.middle, alone.low, alone.verdict, alone.more) == (pytest.approx(3), None, CANNOT_TELL, None)
    none = statistics.ratio({1: 90.0, 2: 90.0}, {3: 30.0})
    assert (none.middle, none.low, none.verdict) == (pytest.approx(3), None, CANNOT_TELL)
    assert statistics.ratio(drifting, drifting).verdict == CANNOT_TELL
    assert statistics.ratio(drifting, drifting).more is None
    with pytest.raises(ValueError, match="both sides"):
        statistics.ratio({}, drifting)


def pair(*logs: float) -> statistics.Ratio:
    return statistics.ratio(dict(enumerate(np.exp(logs))), dict.fromkeys(range(len(logs)), 1.0))


def test_two_pairs_tell_nothing_and_no_width_is_below_the_machines_noise() -> None:
    assert pair(0.5, 0.5).verdict == CANNOT_TELL and pair(0.5, 0.5).more == 1
    near = pair(0.0001, 0.0001, 0.0001)
    assert near.verdict == CANNOT_TELL and (near.low or 1) < 1 < (near.high or 1)
    assert pair(0.5, 0.5, 0.5).verdict == FASTER


def test_many_comparisons_are_judged_at_once() -> None:
    """Alone, one of 90 that agrees by chance is told, and three that are 7 % apart are not told from it."""
    rng = np.random.default_rng(4)
    equal = [pair(*rng.normal(0, 0.014, 3)) for _ in range(86)]
    by_chance = pair(0.0099, 0.01, 0.0101)
    planted = [pair(*(0.07 + rng.normal(0, 0.014, 3))) for _ in range(3)]
    alone = [one.verdict != CANNOT_TELL for one in (by_chance, *equal)]
    assert alone[0] and sum(alone) > 1
    judged = statistics.at_once([by_chance, *equal, *planted])
    assert {one.verdict for one in judged[:-3]} == {CANNOT_TELL}
    assert {one.verdict for one in judged[-3:]} == {FASTER}
    assert all((one.low or 0) <= 1 <= (one.high or 0) for one in judged[:-3])
    assert all((one.low or 0) > 1 for one in judged[-3:])
    assert {one.verdict for one in statistics.at_once(planted, more_is_better=False)} == {SLOWER}
    (one,) = statistics.at_once(planted[:1])
    assert one == planted[0]
    assert statistics.at_once([]) == []


def test_as_many_more_repeats_as_are_said_are_enough() -> None:
    rng = np.random.default_rng(1)
    for effect, known in ((0.04, 3), (0.012, 3), (0.012, 8)):
        # Differences whose median and spread are exactly as planted, so that what is said is exact.
        logs = np.linspace(-1, 1, known)
        logs = effect + 0.02 * logs / logs.std(ddof=1)
        more = pair(*logs).more
        assert more is not None
        told = [pair(*row).verdict == FASTER for row in rng.normal(effect, 0.02, (200, known + more))]
        assert 0.7 <= np.mean(told) <= 0.97


def test_quantiles_are_those_of_scipy_stats() -> None:
    """Which is not imported there: it takes most of a second, and every run and every figure would wait for it."""
    from scipy import stats

    for free in (1, 2, 3, 20):
        assert statistics._t(0.96, free) == pytest.approx(stats.t.ppf(0.98, free), rel=1e-9)
    code = "import sys, ddlbench.analysis.summary; assert 'pandas' in sys.modules and 'scipy.stats' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_drift_beyond_noise_is_reported() -> None:
    cells, when = [1, 1, 1, 2, 2, 2], [0.0, 50.0, 100.0, 10.0, 60.0, 90.0]
    level = np.array([1, 1, 1, 5, 5, 5]) * np.exp(-0.001 * np.array(when))
    noise = np.array([1, 1.001, 0.999, 1.001, 1, 0.999])
    seen = statistics.drift(cells, when, level * noise)
    assert seen and seen.beyond_noise and seen.low < math.exp(-0.1) < seen.high < 1
    still = statistics.drift(cells, when, np.array([1, 1, 1, 5, 5, 5]) * (1 + np.array([1, -2, 1, 1, -2, 1]) / 100))
    assert still and not still.beyond_noise
    assert statistics.drift([1, 2, 3], [0, 1, 2], [1, 2, 3]) is None  # no repeats
    assert statistics.drift([1, 1, 1, 1], [5, 5, 5, 5], [1, 2, 3, 4]) is None  # no time between
    assert statistics.drift([], [], []) is None


def test_intervals_hold_the_truth(bench: Any) -> None:
    """The small sister of `bench/intervals.py`: levels of runs only, 300 studies."""
    rng = np.random.default_rng(3)
    for study in (one for one in bench.STUDIES if one.judged):
        true = math.exp(float(np.median(study.levels(rng, 100_000))))
        for n in (2, 3, 5):  # two have no verdict
            held = false = 0
            for _ in range(300):
                a, b = (np.exp(study.levels(rng, n)) for _ in range(2))
                alone = statistics.over_repeats(list(a))
                held += (alone.low or 0) <= true <= (alone.high or 0)
                false += statistics.ratio(dict(enumerate(a)), dict(enumerate(b))).verdict != CANNOT_TELL
            assert 0.905 <= held / 300 <= 0.985, (study.name, n)
            assert false / 300 <= 0.07, (study.name, n)
