"""How sure a number is: warm-up, spread of steps, intervals over repeats, verdicts on two sides,
drift.

docs/statistics.md says why each method was chosen; `bench/intervals.py` measures on studies with
known truth how often the intervals hold it. All functions are pure. Rates and times are compared by
their logarithms: a ratio and its inverse then say the same.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median, median_high  # of a few values ten times as fast as numpy's
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import (
    special,
)  # not scipy.stats: that takes 0.8 s to import, and every run and figure would pay it

Floats = NDArray[np.float64]

LEVEL = 0.95  # of intervals
# of the interval that a verdict rests on: false verdicts stay below 5 % where intervals hold 95 %
VERDICT_LEVEL = 0.96
DRIFT_LEVEL = 0.99  # level of a drift: of 40 steady studies at most one should show a drift
FEW = 4  # up to so many repeats Student's t, beyond it order statistics
# Of 5 repeats the range holds the median in 93.75 % of studies, whatever the distribution:
# stretched by this share of its width at both ends it holds it as often as the level says
# (bench/intervals.py).
RANGE_INFLATION_N5 = {LEVEL: 0.03, VERDICT_LEVEL: 0.08}
# Student's t of 2 repeats holds the median in 92.5 % of studies where one run of five meets a slow
# node. Stretched by this factor it holds it in 93.5 % there and in 96 % on a quiet machine
# (bench/intervals.py).
T_INFLATION_N2 = 1.12
FEWEST = 3  # pairs of a verdict: on a machine with two speeds two pairs often agree by chance
# No two runs agree more closely: the quietest of nine systems with five results in MLPerf 2.0
# varies by 0.045 %.
NOISE = 0.0005
# From so many comparisons on, a table tells how unsteady its machine is; each then counts as if it
# had that many more pairs, at most `BORROWED`.
MANY, BORROWED = 10, 10.0
# In smaller tables a spread counts as at least this share of the median of all, and as so many
# pairs more; beyond FEW repeats, where order statistics have to agree, it is less, and none
# (bench/intervals.py).
LEAST, PRIOR_DF, LEAST_OF_MORE = 0.75, 0.7, 0.3
POWER = 0.8  # the chance with which so many repeats are to tell two sides apart
MOST = 10_000  # repeats that nobody makes
BATCH = 5  # steps of a batch of MSER-5
FASTER, SLOWER, CANNOT_TELL = "faster", "slower", "cannot tell"


@dataclass(frozen=True)
class Interval:
    """A median with its confidence interval over `n` repeats; without bounds where n = 1, which
    says nothing of other runs.
    """

    middle: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Ratio(Interval):
    """The ratio of two sides over `n` pairs.

    With `more` pairs the difference would probably be significant; None: nobody can say.

    `mean` and `spread` are those of the pairs (of a ratio of their logarithms), as `at_once` needs
    them; `p` is the chance of such a verdict where both sides are equal, 1 where there is none.
    """

    verdict: str = CANNOT_TELL
    more: int | None = None
    p: float = 1.0
    mean: float = 0.0
    spread: float = math.nan


def warm_up(step_s: ArrayLike) -> tuple[int, bool]:
    """Return how many of the first steps are warm-up, and whether the rest is steady; `step_s`:
    step times of a run [s].

    MSER-5: cut d so that the standard error of what is left, sqrt(sum (x - mean)^2) / (n - d), is
    smallest, for d up to half of the steps, over means of 5 steps (below 50 steps: single ones).
    The optimum in the last tenth of those allowed means that the run did not become steady.
    Outliers (see `stalls`) count as if they were at the outlier limit: else one stall would look
    like the end of a warm-up. The first step is always cut: it allocates, connects, chooses
    kernels.

    Source: White 1997, Simulation 69:323; MSER-5 and its limits: Franklin & White 2008, Winter
    Simulation Conference.
    """
    x = _seconds(step_s)
    size = BATCH if len(x) >= 10 * BATCH else 1
    count = len(x) // size
    if count < 2:
        return min(1, len(x)), False
    # Whole batches from the end: the odd steps are the first ones, which are cut first.
    steps_left = np.minimum(x, _outlier_limit(x))[len(x) - count * size :]
    batches = steps_left.reshape(count, size).mean(axis=1)
    batches = batches - batches.mean()  # sums of squares lose no digits
    rest = np.arange(count, 0, -1)
    sums, squares = (np.cumsum((batches**power)[::-1])[::-1] for power in (1, 2))
    allowed = count // 2 + 1
    errors = np.maximum(squares - sums**2 / rest, 0.0)[:allowed] / rest[:allowed] ** 2
    best = int(
        np.argmax(errors <= errors.min() + 1e-9 * errors[0])
    )  # the first of equal values, in spite of rounding
    cut = best * size + (len(x) - count * size if best else 0)
    return max(1, cut), best < 0.9 * (allowed - 1) or best == 0


def stalls(step_s: ArrayLike) -> int:
    """Count the outliers among step times: steps beyond the third quartile by three interquartile
    ranges, and by 10 % of the median.

    They are counted and stay in every rate. Source: Tukey 1977, Exploratory Data Analysis, "far
    out".
    """
    x = _seconds(step_s)
    return int(np.sum(x > _outlier_limit(x)))


def over_repeats(values: Sequence[float], noise: float = NOISE) -> Interval:
    """Return the median of positive values of repeats, with its 95 % confidence interval.

    Up to 4 repeats: Student's t on logarithms. From 5 on: order statistics, interpolated, which
    assume no distribution, so that slow nodes do not pull them. A percentile bootstrap of 3 repeats
    holds the truth in 90 % of studies. `noise` is how far repeats differ at least; counts have
    none.

    Source: Hettmansperger & Sheather 1986, Statistics & Probability Letters 4:75.
    """
    x = _positive(values)
    logs = np.log(x)
    # Of an even number the geometric mean of the two in the middle.
    middle = median(x.tolist()) if len(x) % 2 else math.exp(median(logs.tolist()))
    bounds = _bounds(logs, LEVEL, noise)
    if bounds is None:
        return Interval(middle, None, None, len(logs))
    return Interval(middle, math.exp(bounds[0]), math.exp(bounds[1]), len(logs))


def ratio(
    ours: Mapping[Any, float],
    theirs: Mapping[Any, float],
    more_is_better: bool = True,
    one_of: float = 1,
) -> Ratio:
    """Compare ours with theirs as a ratio: positive values by repeat, and the verdict on ours.

    `more_is_better`: rates; times are not.

    Repeats with the same number are a pair; the others do not count. The interval is that of
    `over_repeats`, of the pairs' ratios. Ours are `faster` or `slower` if 1 is outside of their 96
    % interval. Where any one of `one_of` ratios would decide, it is outside of a wider one too, so
    that chance decides as seldom as with a single ratio (Bonferroni). With fewer than three pairs
    no difference is significant. Without a pair both sides are samples of their own
    (`_two_samples`): it is the ratio of their medians, `n` is the smaller number of runs.
    """
    common = sorted(set(ours) & set(theirs))
    if not common:
        if not ours or not theirs:
            raise ValueError("a ratio needs values on both sides")
        left, right = (_positive(list(side.values())) for side in (ours, theirs))
        middle = median(left.tolist()) / median(right.tolist())
        result = _two_samples(middle, np.log(left), np.log(right), more_is_better, one_of)
        if result.low is None or result.high is None:
            return result
        result = replace(result, low=math.exp(result.low), high=math.exp(result.high))
        return replace(
            result, more=more_repeats(result, one_of) if result.verdict == CANNOT_TELL else 0
        )
    pairs = _positive([ours[repeat] for repeat in common]) / _positive(
        [theirs[repeat] for repeat in common]
    )
    logs, interval = np.log(pairs), over_repeats(pairs.tolist())
    judged = _judged(logs, more_is_better, one_of, NOISE)
    result = Ratio(interval.middle, interval.low, interval.high, interval.n, **judged)
    return replace(
        result, more=more_repeats(result, one_of) if result.verdict == CANNOT_TELL else 0
    )


def difference(ours: Mapping[Any, float], theirs: Mapping[Any, float]) -> Ratio:
    """Compare ours minus theirs, of any sign, by pairs of repeats as in `ratio`; `ours` are
    `faster` where theirs are less.

    The result is the median of the pairs' differences, with its 95 % confidence interval: Student's
    t up to 4 pairs, order statistics from 5 on.
    """
    common = sorted(set(ours) & set(theirs))
    if not common:
        if not ours or not theirs:
            raise ValueError("a difference needs values on both sides")
        left, right = (np.array(list(side.values()), dtype=np.float64) for side in (ours, theirs))
        return _two_samples(median(left.tolist()) - median(right.tolist()), left, right, True)
    pairs = np.array([ours[repeat] - theirs[repeat] for repeat in common], dtype=np.float64)
    low, high = _bounds(pairs, LEVEL) or (None, None)
    return Ratio(median(pairs.tolist()), low, high, len(pairs), **_judged(pairs, True))


def at_once(pairs: Sequence[Ratio], more_is_better: bool = True, same: float = 1.0) -> list[Ratio]:
    """Control the false discovery rate over a table of comparisons.

    Among the significant ones, at most one in 20 is wrong, on average over many studies; where no
    two sides differ, none is significant in 95 % of studies. `same` is 0 for differences.

    Benjamini and Hochberg's rule picks which pairs differ significantly; their intervals are wider
    by the same rule (Benjamini and Yekutieli), so that these are right as often. The interval of a
    pair that does not differ significantly holds `same`. Each pair's spread is judged together with
    that of the others: three pairs that agree by chance prove nothing, and three pairs on a steady
    machine prove more than they would alone.

    Source: Benjamini & Hochberg 1995, J R Stat Soc B 57:289; Benjamini & Yekutieli 2005, J Am Stat
    Assoc 100:71; Smyth 2004, Stat Appl Genet Mol Biol 3(1):3, for the spread from `MANY`
    comparisons on.
    """
    tried = [pair for pair in pairs if pair.n >= FEWEST]
    all_of_them = pool(tried)
    several = len(tried) > 1
    further, usual = (
        (PRIOR_DF, median_high(pair.spread for pair in tried)) if several else (0.0, 0.0)
    )

    def error_of(pair: Ratio) -> tuple[float, float]:
        """Return the degrees of freedom and the standard error of the pairs' mean."""
        if all_of_them:
            return pooled_error(pair, all_of_them, NOISE if same else 0.0)
        more, least = (further, LEAST) if pair.n <= FEW else (0.0, LEAST_OF_MORE)
        return more + pair.n - 1, max(
            pair.spread, NOISE if same else 0.0, least * usual
        ) / math.sqrt(pair.n)

    def chance(pair: Ratio) -> float:
        if len(tried) == 1:
            return pair.p
        freedom, error = error_of(pair)
        value = (
            float(2 * special.stdtr(freedom, -abs(pair.mean) / error))
            if error
            else float(pair.mean == 0)
        )
        return value if all_of_them or pair.n <= FEW else max(value, pair.p)

    chances = [chance(pair) for pair in tried]
    limit = 1 - VERDICT_LEVEL
    ranked = enumerate(sorted(chances), 1)
    share = max(
        (rank / len(tried) for rank, p in ranked if p <= limit * rank / len(tried)), default=0.0
    )
    decided = {id(pair) for pair, p in zip(tried, chances, strict=True) if p <= limit * share}

    def judged(pair: Ratio) -> Ratio:
        low, high = pair.low, pair.high
        if id(pair) not in decided:
            if low is not None and high is not None:
                low, high = min(low, same), max(high, same)
            more = None
            if same and pair.n > 1:
                freedom, error = error_of(pair)
                among = 1 / share if share else max(1, len(tried))
                more = more_repeats(pair, among, freedom - pair.n + 1, error * math.sqrt(pair.n))
            return replace(pair, verdict=CANNOT_TELL, low=low, high=high, more=more)
        if len(tried) > 1:
            freedom, error = error_of(pair)
            width = _t(1 - (1 - LEVEL) * share, freedom) * error
            low, high = pair.mean - width, pair.mean + width
            if same:
                low, high = math.exp(low), math.exp(high)
        verdict = FASTER if (pair.mean > 0) == more_is_better else SLOWER
        return replace(pair, verdict=verdict, more=0, low=low, high=high)

    return [judged(pair) for pair in pairs]


@dataclass(frozen=True)
class Pool:
    """The pooled spread of `MANY` comparisons: as how many further pairs it counts for each, and
    how large a spread is on this machine.
    """

    free: float
    spread: float


def pool(pairs: Sequence[Ratio]) -> Pool | None:
    """Pool the spreads of comparisons with `FEWEST` pairs or more; return None for fewer than
    `MANY`.

    They count for many further pairs where spreads are alike, for none where they differ. Source:
    Smyth 2004, section 6.2; the median in place of his mean, because on a machine with two speeds
    some pairs have no spread.
    """
    pairs = [pair for pair in pairs if pair.n >= FEWEST]
    if len(pairs) < MANY:
        return None
    free = np.array([pair.n - 1.0 for pair in pairs])
    spreads = np.maximum([pair.spread for pair in pairs], NOISE)
    logs = 2 * np.log(spreads) + np.log(free / 2) - special.digamma(free / 2)
    apart = float(np.var(logs, ddof=1) - special.polygamma(1, free / 2).mean())
    least, most = 0.1, BORROWED
    while most - least > 0.01:
        middle = (least + most) / 2
        least, most = (
            (middle, most) if special.polygamma(1, middle / 2) > apart else (least, middle)
        )
    return Pool(most, float(np.median(spreads / np.sqrt(special.chdtri(free, 0.5) / free))))


def pooled_error(pair: Ratio, among: Pool, noise: float = NOISE) -> tuple[float, float]:
    """Return the degrees of freedom and the standard error of a comparison's mean, by its own
    spread and the pool's.
    """
    freedom = among.free + pair.n - 1
    own = max(pair.spread, noise)
    deviation = math.sqrt((among.free * among.spread**2 + (pair.n - 1) * own**2) / freedom)
    return freedom, max(deviation, among.spread) / math.sqrt(pair.n)


def _judged(
    x: Floats, more_is_better: bool, one_of: float = 1, noise: float = 0.0
) -> dict[str, Any]:
    """Return the verdict on these pairs, which are 0 where both sides are equal, and what `at_once`
    needs to judge again.

    Where any one of `one_of` would decide, 0 must lie outside of a wider interval by Student's t as
    well (Bonferroni).
    """
    limit, sure, mean = 1 - VERDICT_LEVEL, _bounds(x, VERDICT_LEVEL, noise), float(x.mean())
    if sure is None:
        return {}
    judged: dict[str, Any] = {"mean": mean, "spread": _spread(x)}
    if len(x) >= FEWEST and (sure[0] > 0 or sure[1] < 0):
        error = max(judged["spread"], noise) / math.sqrt(len(x))
        judged["p"] = min(
            limit, float(2 * special.stdtr(len(x) - 1, -abs(mean) / error)) if error else 0.0
        )
        if judged["p"] <= limit / one_of:
            judged["verdict"] = FASTER if (sure[0] > 0) == more_is_better else SLOWER
    return judged


def _two_samples(
    middle: float, left: Floats, right: Floats, more_is_better: bool, one_of: float = 1
) -> Ratio:
    """Compare two samples without pairs: return their difference with its interval, by Student's t
    for spreads that may differ.

    It has the degrees of freedom of the smaller side, which is conservative. `spread` is such that
    `at_once` finds the same error. Without two values on each side there is no interval.

    Source: Welch 1947, Biometrika 34:28; Hsu 1938, Statistical Research Memoirs 2:1, for the
    smaller side.
    """
    n = min(len(left), len(right))
    if n < 2:
        return Ratio(middle, None, None, 1)
    mean = float(left.mean() - right.mean())
    spreads = [max(_spread(side), NOISE) for side in (left, right)]
    error = math.sqrt(
        sum(spread**2 / len(side) for spread, side in zip(spreads, (left, right), strict=True))
    )
    width, limit = _t(LEVEL, n - 1) * error, 1 - VERDICT_LEVEL
    p = float(2 * special.stdtr(n - 1, -abs(mean) / error))
    verdict = CANNOT_TELL
    if n >= FEWEST and p <= limit / one_of:
        verdict = FASTER if (mean > 0) == more_is_better else SLOWER
    low, high = mean - width, mean + width
    return Ratio(middle, low, high, n, verdict=verdict, p=p, mean=mean, spread=error * math.sqrt(n))


def more_repeats(
    ratio: Ratio, one_of: float = 1, free: float = 0.0, spread: float | None = None
) -> int | None:
    """Estimate how many more pairs would give a verdict with a power of 80 %, if difference and
    spread are as seen so far.

    None for fewer than two pairs, and where no number below 10 000 would do. `free` and `spread`
    are the degrees of freedom and the spread that other pairs add (`at_once`). Source: power of the
    t test from the noncentral t distribution; for more than 4 pairs, the error of a median of n
    normal values, sqrt(pi / 2n) of their spread.
    """
    effect, spread = abs(math.log(ratio.middle)), ratio.spread if spread is None else spread
    if math.isnan(spread):
        return None
    if spread == 0:
        return max(1, FEWEST - ratio.n) if effect else None
    level = 1 - (1 - VERDICT_LEVEL) / one_of
    for n in range(max(FEWEST, ratio.n + 1), FEW + 1):
        limit = _t(level, n - 1 + free)
        if 1 - special.nctdtr(n - 1 + free, effect / spread * math.sqrt(n), limit) >= POWER:
            return n - ratio.n
    needed = float(special.ndtri(0.5 + level / 2) + special.ndtri(POWER))
    if effect == 0:
        return None
    n = math.ceil((1 if free > 1 else math.pi / 2) * (needed * spread / effect) ** 2)
    return max(n, FEW + 1, ratio.n + 1) - ratio.n if n <= MOST else None


def shown_by(repeats: int, spread: float, one_of: float = 1) -> float | None:
    """Return the smallest ratio of two sides that so many pairs show with a chance of 80 %; None
    for too few pairs.

    `spread` is the standard deviation of the logarithm of one run. Source: as for `more_repeats`,
    the power of the t test from the noncentral t distribution.
    """
    if repeats < FEWEST:
        return None
    limit = _t(1 - (1 - VERDICT_LEVEL) / one_of, repeats - 1)
    least, most = 0.0, 10 * limit
    while most - least > 1e-3 * limit:
        middle = (least + most) / 2
        told = 1 - special.nctdtr(repeats - 1, middle, limit) >= POWER
        least, most = (least, middle) if told else (middle, most)
    return math.exp(most * math.sqrt(2 / repeats) * max(spread, NOISE))


@dataclass(frozen=True)
class Drift:
    """The change of rates over the time of a study, as a ratio of its end to its start, with its 95
    % confidence interval.
    """

    ratio: float
    low: float
    high: float
    n: int
    beyond_noise: bool


def drift(cells: Sequence[object], times_s: ArrayLike, rates: ArrayLike) -> Drift | None:
    """Estimate whether rates drifted with time.

    One value per run: `cells` (runs of one cell differ in their repeat only), start times [s] and
    positive rates. None where the runs do not tell: fewer than three beyond one per cell.

    The model is a line through the logarithms, with a level of its own for each cell, so cells may
    differ as they like. The drift is beyond noise if 1 is outside of its 99 % interval.

    Source: Wooldridge 2010, Econometric Analysis of Cross Section and Panel Data, section 10.5
    (fixed effects).
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
    x, y = (
        values - (np.bincount(index, values) / counts)[index]
        for values in ((times - times.min()) / span, logs)
    )
    moved = float(x @ x)
    if not moved > 0:  # each cell's runs began at the same time
        return None
    slope = float(x @ y) / moved
    error = math.sqrt(float(np.sum((y - slope * x) ** 2)) / free / moved)
    width, sure = (_t(level, free) * error for level in (LEVEL, DRIFT_LEVEL))
    bounds = math.exp(slope - width), math.exp(slope + width)
    return Drift(math.exp(slope), *bounds, len(logs), abs(slope) > sure)


@lru_cache
def _t(level: float, free: float) -> float:
    """Return Student's t for an interval of this level."""
    return float(special.stdtrit(free, 0.5 + level / 2))


def _bounds(x: Floats, level: float, noise: float = 0.0) -> tuple[float, float] | None:
    """Return the confidence interval of the median of these values; None for fewer than two.

    It is never narrower than that of values with the spread `noise`.
    """
    n = len(x)
    if n < 2:
        return None
    low, high = _ends(x, level)
    middle, width = median(x.tolist()), _t(level, n - 1) * noise / math.sqrt(n)
    return min(low, middle - width), max(high, middle + width)


def _ends(x: Floats, level: float) -> tuple[float, float]:
    n = len(x)
    if n <= FEW:
        width = _t(level, n - 1) * _spread(x) / math.sqrt(n) * (T_INFLATION_N2 if n == 2 else 1.0)
        return float(x.mean()) - width, float(x.mean()) + width
    x = np.sort(x)
    if n == FEW + 1:
        more = RANGE_INFLATION_N5[level] * float(x[-1] - x[0])
        return float(x[0]) - more, float(x[-1]) + more
    # The k-th values from below and above hold the median with this probability; k and k + 1
    # enclose the level.
    held = 1 - 2 * special.bdtr(np.arange(n // 2), n, 0.5)
    k = int(np.sum(held >= level))
    share = (held[k - 1] - level) / (held[k - 1] - held[k])
    weight = float((n - k) * share / (k + (n - 2 * k) * share))
    low = (1 - weight) * x[k - 1] + weight * x[k]
    high = (1 - weight) * x[n - k] + weight * x[n - k - 1]
    return float(low), float(high)


def _spread(x: Floats) -> float:
    """Return the standard deviation of at least two values; numpy's takes four times as long for a
    few.
    """
    away = x - x.sum() / len(x)
    return math.sqrt(float(away @ away) / (len(x) - 1))


def _outlier_limit(x: Floats) -> float:
    """Return the outlier limit: a step beyond it is an outlier."""
    low, middle, high = np.quantile(x, (0.25, 0.5, 0.75))
    return float(max(high + 3 * (high - low), 1.1 * middle))


def _seconds(values: ArrayLike) -> Floats:
    """Return finite numbers, at least 0, and not all of them 0; raise ValueError for others."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or not (np.isfinite(x) & (x >= 0)).all() or not x.any():
        raise ValueError("step times must be finite, at least 0, and not all of them 0")
    return x


def _positive(values: ArrayLike) -> Floats:
    """Return finite numbers above zero, at least one; raise ValueError for others."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or not len(x) or not (np.isfinite(x) & (x > 0)).all():
        raise ValueError("rates and times must be finite numbers above 0, at least one")
    return x
