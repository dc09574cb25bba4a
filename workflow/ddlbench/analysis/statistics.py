"""How sure a number is: warm-up, spread of steps, intervals over repeats, verdicts on two sides, drift.

docs/statistics.md says why each method was chosen; `bench/intervals.py` measures on studies with known truth how
often the intervals hold it. All functions are pure. Rates and times are compared by their logarithms: a ratio and its
inverse then say the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special  # not scipy.stats: that takes 0.8 s to import, and every run and figure would pay it

Floats = NDArray[np.float64]

LEVEL = 0.95  # of intervals
VERDICT_LEVEL = 0.96  # of the interval that a verdict rests on: false verdicts stay below 5 % where intervals hold 95 %
FEW = 4  # up to so many repeats Student's t, beyond it order statistics
# Of 5 repeats the range holds the median in 93.75 % of studies, whatever the distribution: stretched by this share of
# its width at both ends it holds it as often as the level says (bench/intervals.py).
STRETCHED = {LEVEL: 0.03, VERDICT_LEVEL: 0.08}
# Student's t of 2 repeats holds the median in 92.5 % of studies where one run of five meets a slow node. Stretched by
# this factor it holds it in 93.5 % there and in 96 % on a quiet machine (bench/intervals.py). Verdicts need none.
OF_TWO = {LEVEL: 1.12, VERDICT_LEVEL: 1.0}
POWER = 0.8  # the chance with which so many repeats are to tell two sides apart
MOST = 10_000  # repeats that nobody makes
BATCH = 5  # steps of a batch of MSER-5
FASTER, SLOWER, CANNOT_TELL = "faster", "slower", "cannot tell"


@dataclass(frozen=True)
class Interval:
    """A median with its interval over `n` repeats; without bounds where n = 1, which says nothing of other runs."""

    middle: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Ratio(Interval):
    """The ratio of two sides over `n` pairs. `more` pairs would probably tell them apart; None: nobody can say."""

    verdict: str = CANNOT_TELL
    more: int | None = None


def warm_up(step_s: ArrayLike) -> tuple[int, bool]:
    """How many of the first steps are warm-up, and whether the rest is steady; `step_s`: step times of a run [s].

    MSER-5: cut d so that the standard error of what is left, sqrt(sum (x - mean)^2) / (n - d), is smallest, for d up to
    half of the steps, over means of 5 steps (below 50 steps: single ones). The optimum in the last tenth of those
    allowed means that the run did not become steady. Steps that are far out (see `stalls`) count as if they were at
    that limit: else one stall would look like the end of a warm-up. The first step is always cut: it allocates,
    connects, chooses kernels.

    Source: White 1997, Simulation 69:323; MSER-5 and its limits: Franklin & White 2008, Winter Simulation Conference.
    """
    x = _seconds(step_s)
    size = BATCH if len(x) >= 10 * BATCH else 1
    count = len(x) // size
    if count < 2:
        return min(1, len(x)), False
    # Whole batches from the end: the odd steps are the first ones, which are cut first.
    kept = np.minimum(x, _far_out(x))[len(x) - count * size :]
    batches = kept.reshape(count, size).mean(axis=1)
    batches = batches - batches.mean()  # sums of squares lose no digits
    left = np.arange(count, 0, -1)
    sums, squares = (np.cumsum((batches**power)[::-1])[::-1] for power in (1, 2))
    allowed = count // 2 + 1
    errors = np.maximum(squares - sums**2 / left, 0.0)[:allowed] / left[:allowed] ** 2
    best = int(np.argmax(errors <= errors.min() + 1e-9 * errors[0]))  # the first of equals, whatever rounding says
    cut = best * size + (len(x) - count * size if best else 0)
    return max(1, cut), best < 0.9 * (allowed - 1) or best == 0


def stalls(step_s: ArrayLike) -> int:
    """How many steps are far out: beyond the third quartile by three interquartile ranges, and by 10 % of the median.

    They are counted and stay in every rate. Source: Tukey 1977, Exploratory Data Analysis, "far out".
    """
    x = _seconds(step_s)
    return int(np.sum(x > _far_out(x)))


def over_repeats(values: Sequence[float]) -> Interval:
    """The median of positive values of repeats, with its 95 % interval.

    Up to 4 repeats: Student's t on logarithms. From 5 on: order statistics, interpolated, which assume no distribution,
    so that slow nodes do not pull them. A percentile bootstrap of 3 repeats holds the truth in 90 % of studies.

    Source: Hettmansperger & Sheather 1986, Statistics & Probability Letters 4:75.
    """
    x = _positive(values)
    logs = np.log(x)
    # Of an even number the geometric mean of the two in the middle.
    middle = float(np.median(x)) if len(x) % 2 else float(np.exp(np.median(logs)))
    bounds = _bounds(logs, LEVEL)
    if bounds is None:
        return Interval(middle, None, None, len(logs))
    return Interval(middle, math.exp(bounds[0]), math.exp(bounds[1]), len(logs))


def ratio(
    ours: Mapping[int, float], theirs: Mapping[int, float], more_is_better: bool = True, one_of: int = 1
) -> Ratio:
    """Ours over theirs: positive values by repeat, and the verdict on ours. `more_is_better`: rates; times are not.

    Repeats with the same number are a pair; the others do not count. The interval is that of `over_repeats`, of the
    pairs' ratios. Ours are `faster` or `slower` if 1 is outside of their 96 % interval. Where any one of `one_of`
    ratios would decide, it is outside of a wider one too, so that chance decides as seldom as with a single ratio
    (Bonferroni). Without a pair it is the ratio of medians, and with fewer than two pairs nobody can tell.
    """
    common = sorted(set(ours) & set(theirs))
    if not common:
        if not ours or not theirs:
            raise ValueError("a ratio needs values on both sides")
        alone = [float(np.median(_positive(list(side.values())))) for side in (ours, theirs)]
        return Ratio(alone[0] / alone[1], None, None, 1)
    pairs = _positive([ours[one] for one in common]) / _positive([theirs[one] for one in common])
    logs, interval = np.log(pairs), over_repeats(pairs.tolist())
    sure = _bounds(logs, VERDICT_LEVEL)
    verdict = CANNOT_TELL
    if sure is not None and (sure[0] > 0 or sure[1] < 0) and (one_of == 1 or _apart(logs, one_of)):
        verdict = FASTER if (sure[0] > 0) == more_is_better else SLOWER
    more = more_repeats(logs) if verdict == CANNOT_TELL else 0
    return Ratio(interval.middle, interval.low, interval.high, interval.n, verdict, more)


def _apart(logs: Floats, one_of: int) -> bool:
    """Whether 0 is outside of Student's interval of these logarithms. With `one_of` such intervals, all of them hold
    together as often as a single one at VERDICT_LEVEL (Bonferroni)."""
    n, level = len(logs), 1 - (1 - VERDICT_LEVEL) / one_of
    return abs(float(logs.mean())) > _t(level, n - 1) * float(np.std(logs, ddof=1)) / math.sqrt(n)


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Ratio:
    """Ours minus theirs, of any sign, by pairs of repeats as in `ratio`; `ours` are `faster` where theirs are less.

    The median of the pairs' differences, with its 95 % interval: Student's t up to 4 pairs, order statistics from 5 on.
    """
    common = sorted(set(ours) & set(theirs))
    if not common:
        if not ours or not theirs:
            raise ValueError("a difference needs values on both sides")
        return Ratio(float(np.median([*ours.values()]) - np.median([*theirs.values()])), None, None, 1)
    pairs = np.array([ours[one] - theirs[one] for one in common], dtype=np.float64)
    ends, sure = _bounds(pairs, LEVEL), _bounds(pairs, VERDICT_LEVEL)
    verdict = CANNOT_TELL
    if sure is not None and (sure[0] > 0 or sure[1] < 0):
        verdict = FASTER if sure[0] > 0 else SLOWER
    low, high = ends if ends is not None else (None, None)
    return Ratio(float(np.median(pairs)), low, high, len(pairs), verdict)


def more_repeats(logs: ArrayLike) -> int | None:
    """How many more pairs would give a verdict with a chance of 80 %, if difference and spread are as seen so far.

    `logs` are the logarithms of the pairs' ratios. None for fewer than two pairs, and where no number below 10 000
    would do. Source: power of the t test from the noncentral t distribution; for more than 4 pairs, the error of a
    median of n normal values, sqrt(pi / 2n) of their spread.
    """
    logs = np.asarray(logs, dtype=np.float64)
    if len(logs) < 2:
        return None
    effect, spread = abs(float(np.median(logs))), float(np.std(logs, ddof=1))
    if spread == 0:
        return 1 if effect else None
    for n in range(len(logs) + 1, FEW + 1):
        limit = _t(VERDICT_LEVEL, n - 1)
        if 1 - special.nctdtr(n - 1, effect / spread * math.sqrt(n), limit) >= POWER:
            return n - len(logs)
    needed = float(special.ndtri(0.5 + VERDICT_LEVEL / 2) + special.ndtri(POWER))
    if effect == 0 or (needed * spread / effect) ** 2 > MOST:
        return None
    n = math.ceil(math.pi / 2 * (needed * spread / effect) ** 2)
    return max(n, FEW + 1, len(logs) + 1) - len(logs)


@dataclass(frozen=True)
class Drift:
    """Change of rates over the time of a study, as a ratio of its end to its start, with its 95 % interval."""

    ratio: float
    low: float
    high: float
    n: int
    beyond_noise: bool


def drift(cells: Sequence[object], times_s: ArrayLike, rates: ArrayLike) -> Drift | None:
    """Whether rates moved with time. One value per run: `cells` (runs of one cell differ in their repeat only), start
    times [s] and positive rates. None where the runs do not tell: fewer than three beyond one per cell.

    A line through the logarithms, with a level of its own for each cell, so cells may differ as they like. Beyond
    noise: 1 is outside of its 96 % interval.

    Source: Wooldridge 2010, Econometric Analysis of Cross Section and Panel Data, section 10.5 (fixed effects).
    """
    names = [repr(cell) for cell in cells]
    if not names:
        return None
    times, logs = np.asarray(times_s, dtype=np.float64), np.log(_positive(rates))
    if not len(names) == len(times) == len(logs):
        raise ValueError("each run needs its cell, its start and its rate")
    _, index, counts = np.unique(names, return_inverse=True, return_counts=True)
    free = len(logs) - len(counts) - 1
    span = float(np.ptp(times))
    if free < 2 or not span > 0:
        return None
    x, y = (values - (np.bincount(index, values) / counts)[index] for values in ((times - times.min()) / span, logs))
    moved = float(x @ x)
    if not moved > 0:  # each cell's runs began at the same time
        return None
    slope = float(x @ y) / moved
    error = math.sqrt(float(np.sum((y - slope * x) ** 2)) / free / moved)
    width, sure = (_t(level, free) * error for level in (LEVEL, VERDICT_LEVEL))
    bounds = math.exp(slope - width), math.exp(slope + width)
    return Drift(math.exp(slope), *bounds, len(logs), abs(slope) > sure)


@lru_cache
def _t(level: float, free: int) -> float:
    """Student's t for an interval of this level."""
    return float(special.stdtrit(free, 0.5 + level / 2))


def _bounds(logs: Floats, level: float) -> tuple[float, float] | None:
    """The interval of the median of these logarithms; None for fewer than two."""
    n = len(logs)
    if n < 2:
        return None
    if n <= FEW:
        width = _t(level, n - 1) * float(np.std(logs, ddof=1)) / math.sqrt(n) * (OF_TWO[level] if n == 2 else 1.0)
        return float(logs.mean()) - width, float(logs.mean()) + width
    x = np.sort(logs)
    if n == FEW + 1:
        more = STRETCHED[level] * float(x[-1] - x[0])
        return float(x[0]) - more, float(x[-1]) + more
    # The k-th values from below and above hold the median with this probability; k and k + 1 enclose the level.
    held = 1 - 2 * special.bdtr(np.arange(n // 2), n, 0.5)
    k = int(np.sum(held >= level))
    share = (held[k - 1] - level) / (held[k - 1] - held[k])
    weight = float((n - k) * share / (k + (n - 2 * k) * share))
    low = (1 - weight) * x[k - 1] + weight * x[k]
    high = (1 - weight) * x[n - k] + weight * x[n - k - 1]
    return float(low), float(high)


def _far_out(x: Floats) -> float:
    """Beyond this, a step is far out."""
    low, middle, high = np.quantile(x, (0.25, 0.5, 0.75))
    return float(max(high + 3 * (high - low), 1.1 * middle))


def _seconds(values: ArrayLike) -> Floats:
    """Finite numbers, at least 0, and not all of them 0; raises ValueError for others."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or not (np.isfinite(x) & (x >= 0)).all() or not x.any():
        raise ValueError("step times must be finite, at least 0, and not all of them 0")
    return x


def _positive(values: ArrayLike) -> Floats:
    """Finite numbers above zero, at least one; raises ValueError for others."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or not len(x) or not (np.isfinite(x) & (x > 0)).all():
        raise ValueError("rates and times must be finite numbers above 0, at least one")
    return x
