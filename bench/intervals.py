"""How often do our intervals hold the truth? Made-up studies, whose truth is known, judged by
`analysis/intervals.py` and `analysis/significance.py`.

    python bench/intervals.py [--trials N] [--seed N]

A made-up run has 300 steps: a warm-up (the first steps take three times as long, then less and
less), noise in which steps that follow each other are alike, and rare stalls of any length. A run
also has a level of its own. The studies differ in what else is wrong: `STUDIES`. Each is made
`--trials` times with 2, 3, 4, 5, 6 and 10 repeats of two sides.

    median       how often the 95 % interval over repeats holds the median of all runs there could be
    ratio        how often the 95 % interval of the ratio holds the true ratio, 1.05
    false        how often two equal sides are called faster or slower
    told         how often the difference of 5 % is told
    bootstrap    the rival: how often the percentile bootstrap over runs and blocks of steps holds the true median

Then studies of 2, 3, 40 and 90 pairs, of which people read all verdicts together
(`significance.control_false_discoveries`): how many have a false verdict where all sides are equal,
each pair judged alone and all at once (with the upper end of that share's own interval), and how
many of the true differences of 5 %, which one setting in ten has, are told either way.

It exits with 1 if an interval holds the truth in less than 93 % or more than 97 % of the studies
(of one side alone under drift there is no upper limit; up to 98.5 % where up to 4 repeats meet a
slow node), or if equal sides are called faster or slower in more than 5 % (of single pairs, and of
studies judged at once). The name is not statistics.py, because scripts beside it import Python's
own `statistics`.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations, product

import numpy as np
from ddlbench.analysis import intervals, significance
from ddlbench.analysis.drift import drift
from ddlbench.analysis.warm_up import warm_up
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import special
from scipy.signal import lfilter

Floats = NDArray[np.float64]
Shape = tuple[int, ...]
STEPS, REPEATS, MOST = 300, (2, 3, 4, 5, 6, 10), 10
STEP_S, IMAGES = 0.1, 64.0
HOLDS, FALSE = (0.93, 0.97), 0.05
# With up to 4 repeats nobody knows whether one of them had the slow node: there an interval may
# also be too wide.
SLOW_NODE_HOLDS = (0.93, 0.985)
# Mixed repeats are spread evenly over a drift, more than by chance: intervals of one side are too
# wide.
DRIFT_HOLDS = (0.93, 1.0)
TRUE_RATIO = 1.05  # of the side that is ahead
RESAMPLES = 400


@dataclass(frozen=True)
class Study:
    """What a made-up study is like. `levels` gives the logarithm of so many runs' own levels;
    `drift` is what the study loses from its first to its last run; `fixed_order`: one side's runs
    all come before the other's.
    """

    name: str
    levels: Callable[[Generator, int], Floats]
    stalls: float = 0.0  # share of steps
    drift: float = 0.0
    steps: int = STEPS
    warm: float = 10.0  # steps in which warm-up fades to a third
    fixed_order: bool = False
    judged: bool = True
    other: Callable[[Generator, int], Floats] | None = field(
        default=None
    )  # levels of the other side


def normal(spread: float) -> Callable[[Generator, int | Shape], Floats]:
    """Levels from a normal distribution."""
    return lambda rng, n: rng.normal(0, spread, n)


def tails(rng: Generator, n: int | Shape) -> Floats:
    """Levels with heavy tails: Student's t with 4 degrees of freedom."""
    return 0.01 * rng.standard_t(4, n)


def slow_node(share: float) -> Callable[[Generator, int | Shape], Floats]:
    """This share of the runs gets the slow node, and runs 10 % below the others."""
    return lambda rng, n: rng.normal(0, 0.01, n) + np.log(0.9) * (rng.random(n) < share)


STUDIES = (
    Study("quiet machine", normal(0.01)),
    Study("60 steps a run", normal(0.01), steps=60, warm=1.0),
    Study("heavy tails", tails, stalls=0.02),
    Study("slow node, 1 of 10 runs", slow_node(0.1)),
    Study("slow node, 1 of 5 runs", slow_node(0.2)),
    Study("one side four times as unsteady", normal(0.01), other=normal(0.04)),
    Study("drift of 5 %, random order", normal(0.01), drift=0.05),
    Study(
        "tails, slow node and drift",
        lambda r, n: tails(r, n) + slow_node(0.1)(r, n),
        stalls=0.02,
        drift=0.05,
    ),
    Study("drift of 5 %, one side first", normal(0.01), drift=0.05, fixed_order=True, judged=False),
)


def of_its_own(rng: Generator, shape: Shape) -> Floats:
    """Each setting (the first axis) has a spread of its own, from 0.25 to 4 %."""
    return 0.01 * 4.0 ** rng.uniform(-1, 1, (shape[0], 1, 1)) * rng.normal(0, 1, shape)


def unsteady(rng: Generator, shape: Shape) -> Floats:
    """The last side (the second axis) varies by 10 %, the others by 1 %."""
    made: Floats = (
        rng.normal(0, 0.01, shape)
        * np.where(np.arange(shape[1]) == shape[1] - 1, 10.0, 1.0)[:, None]
    )
    return made


STUDIES_OF_MANY: dict[str, Callable[[Generator, Shape], Floats]] = {
    "quiet machine": normal(0.01),
    "heavy tails": tails,
    "slow node, 1 of 10 runs": slow_node(0.1),
    "two speeds, 3 % apart": lambda r, n: 0.03 * (r.random(n) < 0.5) + r.normal(0, 0.0003, n),
    "each setting with a spread of its own": of_its_own,
    "one side ten times as unsteady": unsteady,
}


def step_times(study: Study, rng: Generator, levels: Floats, warm: float | None = None) -> Floats:
    """Step times [s] of runs with these levels, one row per run; `warm` in place of the study's, 0
    for no warm-up.
    """
    warm = study.warm if warm is None else warm
    shape = (len(levels), study.steps)
    noise = lfilter([1], [1, -0.5], rng.normal(0, 0.05 * np.sqrt(0.75), shape), axis=1)
    stalled = 1 + (rng.random(shape) < study.stalls) * rng.pareto(2.5, shape) * 2
    warming = 1 + 2 * np.exp(-np.arange(study.steps) / warm) if warm else 1.0
    made: Floats = STEP_S * np.exp(noise - levels[:, None]) * stalled * warming
    return made


def rates(times: Floats) -> tuple[Floats, Floats]:
    """Each run's rate after warm-up [images/s], and its rates in 10 blocks of steps."""
    rate, blocks = np.empty(len(times)), np.empty((len(times), 10))
    for row, run in enumerate(times):
        kept = run[warm_up(run)[0] :]
        rate[row] = IMAGES * len(kept) / kept.sum()
        size = len(kept) // 10
        blocks[row] = IMAGES * size / kept[: 10 * size].reshape(10, size).sum(axis=1)
    return rate, blocks


def truth(study: Study, rng: Generator) -> float:
    """The median rate of all runs there could be, without warm-up, at any time of the study."""
    times = step_times(study, rng, study.levels(rng, 20_000), warm=0)
    made = IMAGES * study.steps / times.sum(axis=1) * np.exp(-study.drift * rng.random(20_000))
    return float(np.median(made))


def places(study: Study, rng: Generator, trials: int, n: int) -> Floats:
    """When runs happen, from 0 to 1: per trial the first side's n runs, then the other's.

    As in `plan/runs.py`: all first repeats come before all second ones, and chance decides within a
    repeat.
    """
    order = np.tile(np.arange(2 * n, dtype=np.float64), (trials, 1))
    if not study.fixed_order:
        first = rng.integers(0, 2, (trials, n))
        order = 2.0 * np.arange(n) + np.concatenate([first, 1 - first], axis=1).reshape(
            trials, 2, n
        )
        order = order.reshape(trials, 2 * n)
    return order / (2 * n - 1)


def bootstrap(rng: Generator, blocks: Floats) -> tuple[float, float]:
    """The rival: percentiles of the median over resampled runs, each of resampled blocks of
    steps.
    """
    n, count = blocks.shape
    runs = rng.integers(0, n, (RESAMPLES, n))
    picked = blocks[runs[:, :, None], rng.integers(0, count, (RESAMPLES, n, count))]
    medians = np.median(1 / np.mean(1 / picked, axis=2), axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(low), float(high)


@dataclass(frozen=True)
class Row:
    """Shares of trials."""

    study: Study
    n: int
    median: float
    ratio: float
    false: float
    told: float
    bootstrap: float

    @property
    def kept(self) -> bool:
        """Whether the limits are."""
        low, high = SLOW_NODE_HOLDS if "slow node" in self.study.name and self.n <= 4 else HOLDS
        least, most = DRIFT_HOLDS if self.study.drift and (low, high) == HOLDS else (low, high)
        return least <= self.median <= most and low <= self.ratio <= high and self.false <= FALSE


def judge(study: Study, trials: int, seed: int) -> list[Row]:
    """The study, made so many times with each number of repeats."""
    rng = np.random.default_rng(seed)
    one, one_blocks = rates(step_times(study, rng, study.levels(rng, trials * MOST)))
    two, _ = rates(step_times(study, rng, (study.other or study.levels)(rng, trials * MOST)))
    one, two, one_blocks = (
        one.reshape(trials, MOST),
        two.reshape(trials, MOST),
        one_blocks.reshape(trials, MOST, -1),
    )
    true = truth(study, rng)
    rows = []
    for n in REPEATS:
        when = np.exp(-study.drift * places(study, rng, trials, n))
        counts = dict.fromkeys(("median", "ratio", "false", "told", "bootstrap"), 0)
        for trial in range(trials):
            a, b = one[trial, :n] * when[trial, :n], two[trial, :n] * when[trial, n:]
            alone = intervals.over_repeats(list(a))
            counts["median"] += _holds((alone.low, alone.high), true)
            pairs = dict(enumerate(a * TRUE_RATIO)), dict(enumerate(b))
            apart, equal = (
                significance.ratio(*pairs),
                significance.ratio(dict(enumerate(a)), pairs[1]),
            )
            counts["ratio"] += _holds((apart.low, apart.high), TRUE_RATIO)
            counts["told"] += apart.verdict == significance.FASTER
            counts["false"] += equal.verdict != significance.CANNOT_TELL
            if trial % 4 == 0:  # it takes long
                counts["bootstrap"] += 4 * _holds(
                    bootstrap(rng, one_blocks[trial, :n] * when[trial, :n, None]), true
                )
        rows.append(Row(study, n, **{name: count / trials for name, count in counts.items()}))
    return rows


def _holds(bounds: tuple[float | None, float | None], true: float) -> bool:
    low, high = bounds
    return low is not None and high is not None and low <= true <= high


def many(trials: int, seed: int) -> tuple[list[str], list[str]]:
    """False verdicts and power of studies of many pairs; and those of which more than FALSE may
    have a false one: the upper end of the share's own 95 % interval (Clopper & Pearson 1934)
    counts.
    """
    lines = [
        "| study | repeats | pairs | false, each alone | false, at once | at most | told, alone |"
        " told, at once |"
    ]
    lines, broken = [*lines, "|---" * 8 + "|"], []
    for (name, levels), n, (settings, sides) in product(
        STUDIES_OF_MANY.items(), (3, 5), ((2, 2), (1, 3), (40, 2), (30, 3))
    ):
        rng, shape, one_in_ten = (
            np.random.default_rng(seed),
            (settings, sides, n),
            max(1, settings // 10),
        )
        tries = 2 * trials if settings < 3 else trials // 2
        said: Floats = np.mean(
            [_told(levels(rng, shape)).any(axis=1) for _ in range(tries)], axis=0
        )
        wrong = round(said[1] * tries)
        most = float(special.betaincinv(wrong + 1, max(tries - wrong, 1e-9), 0.975))
        gain = (
            np.log(TRUE_RATIO)
            * (np.arange(settings) < one_in_ten)[:, None, None]
            * (np.arange(sides) == 0)[:, None]
        )
        true = one_in_ten * (
            sides - 1
        )  # the pairs of the side that is ahead come first in its setting
        ahead = [
            k
            for of in range(one_in_ten)
            for k in range(of * _pairs(sides), of * _pairs(sides) + sides - 1)
        ]
        power = np.mean(
            [
                _told(levels(rng, shape) + gain)[:, ahead].sum(axis=1) / true
                for _ in range(tries // 5)
            ],
            0,
        )
        shares = " | ".join(f"{share:.1%}" for share in (*said, most, *power))
        lines.append(f"| {name} | {n} | {settings * _pairs(sides)} | {shares} |")
        broken += [f"{name}, {n} repeats, {settings * _pairs(sides)} pairs"] if most > FALSE else []
    return lines, broken


def _pairs(sides: int) -> int:
    return sides * (sides - 1) // 2


def _told(levels: Floats) -> NDArray[np.bool_]:
    """Which pairs of each setting's sides differ significantly, each judged alone and all at once:
    (2, pairs).
    """
    pairs = [
        _ratio(of[one] - of[two]) for of in levels for one, two in combinations(range(len(of)), 2)
    ]
    both = (pairs, significance.control_false_discoveries(pairs))
    return np.array(
        [[pair.verdict != significance.CANNOT_TELL for pair in judged] for judged in both]
    )


def warm_ups(trials: int, seed: int) -> list[str]:
    """What MSER-5 cuts of runs with longer and longer warm-ups, and what that leaves of the error
    in the rate.
    """
    rng, study = np.random.default_rng(seed), Study("", normal(0.0), stalls=0.01)
    lines = [
        "| warm-up fades to a third in | steps cut, median | rate, error before | after | not"
        " steady |"
    ]
    lines += ["|---|---|---|---|---|"]
    for warm in (0.0, 3.0, 10.0, 30.0, 300.0):
        times = step_times(study, rng, np.zeros(trials), warm)
        true = STEPS / step_times(study, rng, np.zeros(trials), 0).sum(axis=1)
        cut = [warm_up(run) for run in times]
        after = [(STEPS - d) / run[d:].sum() for run, (d, _) in zip(times, cut, strict=True)]
        before, left = (
            np.median(made) / np.median(true) - 1 for made in (STEPS / times.sum(axis=1), after)
        )
        unsteady = np.mean([not steady for _, steady in cut])
        said = f"{warm:g} steps" if warm else "there is none"
        lines.append(
            f"| {said} | {np.median([d for d, _ in cut]):.0f} | {before:+.1%} | {left:+.1%} |"
            f" {unsteady:.1%} |"
        )
    return lines


def drifts(trials: int, seed: int) -> list[str]:
    """How often a drift is reported, in studies of four cells with three repeats in random
    order.
    """
    lines = ["| drift over the study | runs vary by | reported |", "|---|---|---|"]
    rng = np.random.default_rng(seed)
    cells = np.repeat(np.arange(4), 3)
    for moved in (0.0, 0.02, 0.05):
        for name, levels in (("1 %", normal(0.01)), ("1 %, heavy tails", tails)):
            found = 0
            for _ in range(trials):
                when = rng.permutation(12) / 11.0
                seen = drift(list(cells), when, np.exp(cells + levels(rng, 12) - moved * when))
                found += seen is not None and seen.beyond_noise
            lines.append(f"| {moved:.0%} | {name} | {found / trials:.1%} |")
    return lines


def more(trials: int, seed: int) -> list[str]:
    """Whether so many more repeats as were said to be enough were enough."""
    lines = [
        "| true ratio | undecided after 3 | more repeats, median | enough |",
        "|---|---|---|---|",
    ]
    rng = np.random.default_rng(seed)
    for true in (1.01, 1.02, 1.03):
        said, enough = [], 0
        for _ in range(trials):
            logs = np.log(true) + rng.normal(0, 0.014, 400)
            first = _ratio(logs[:3])
            if (
                first.verdict == significance.CANNOT_TELL
                and first.more is not None
                and first.more <= 397
            ):
                said.append(first.more)
                enough += _ratio(logs[: 3 + first.more]).verdict != significance.CANNOT_TELL
        share = len(said) / trials
        lines.append(
            f"| {true} | {share:.0%} | {np.median(said):.0f} | {enough / max(1, len(said)):.0%} |"
        )
    return lines


def _ratio(logs: Floats) -> significance.Comparison:
    return significance.ratio(dict(enumerate(np.exp(logs))), dict.fromkeys(range(len(logs)), 1.0))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    broken = []
    print(
        "| study | repeats | median | ratio | false | told | bootstrap |",
        "|---|---|---|---|---|---|---|",
        sep="\n",
    )
    for study in STUDIES:
        for row in judge(study, given.trials, given.seed):
            shares = (row.median, row.ratio, row.false, row.told, row.bootstrap)
            print(
                f"| {study.name} | {row.n} |",
                " | ".join(f"{share:.1%}" for share in shares),
                "|",
                flush=True,
            )
            broken += [row] if study.judged and not row.kept else []
    lines, too_many = many(given.trials, given.seed)
    print("", *lines, sep="\n", flush=True)
    for part in (warm_ups, drifts, more):
        print("", *part(given.trials, given.seed), sep="\n", flush=True)
    beyond = [f"{row.study.name}, {row.n} repeats" for row in broken] + too_many
    for said in beyond:
        print(f"beyond the limits: {said}", file=sys.stderr)
    sys.exit(1 if beyond else 0)


if __name__ == "__main__":
    main()
