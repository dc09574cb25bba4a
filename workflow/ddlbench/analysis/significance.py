"""Which differences are significant: verdicts on the ratio of two sides, on a table of comparisons,
and how many further repeats a verdict would take.

docs/statistics.md says why each method was chosen; `bench/intervals.py` measures on studies with
known truth how often verdicts are right. All functions are pure. Rates and times are compared by
their logarithms: a ratio and its inverse then say the same. Over several settings:
`over_settings.py`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, median_high  # of a few values ten times as fast as numpy's
from typing import Any

import numpy as np
from scipy import (
    special,
)  # not scipy.stats: that takes 0.8 s to import, and every run and figure would pay it

from ddlbench.analysis.intervals import (
    FEW,
    LEVEL,
    NOISE,
    VERDICT_LEVEL,
    Floats,
    Interval,
    median_bounds,
    over_repeats,
    positive,
    standard_deviation,
    student_t,
)

FEWEST = 3  # pairs of a verdict: on a machine with two speeds two pairs often agree by chance
# From so many comparisons on, a table tells how unsteady its machine is; each then counts as if it
# had that many more pairs, at most `BORROWED`.
MANY, BORROWED = 10, 10.0
# In smaller tables a spread counts as at least this share of the median of all, and as so many
# pairs more; beyond FEW repeats, where order statistics have to agree, it is less, and none
# (bench/intervals.py).
LEAST, PRIOR_DF, LEAST_OF_MORE = 0.75, 0.7, 0.3
POWER = 0.8  # the chance with which so many repeats are to tell two sides apart
MOST = 10_000  # repeats that nobody makes
FASTER, SLOWER, CANNOT_TELL = "faster", "slower", "cannot tell"


@dataclass(frozen=True)
class Comparison(Interval):
    """Two sides compared over `n` pairs: their ratio, or their difference (`difference`).

    With `more` pairs the difference would probably be significant; None: nobody can say.

    `mean` and `spread` are those of the pairs (of a ratio, of its logarithms), as
    `control_false_discoveries` needs them; `p` is the chance of such a verdict where both sides are
    equal, 1 where there is none.
    """

    verdict: str = CANNOT_TELL
    more: int | None = None
    p: float = 1.0
    mean: float = 0.0
    spread: float = math.nan


def ratio(
    side: Mapping[Any, float],
    other: Mapping[Any, float],
    more_is_better: bool = True,
    comparisons: float = 1,
) -> Comparison:
    """Compare a side with the other as a ratio: positive values by repeat, and the verdict on the
    side.

    `more_is_better`: True for rates, False for times.

    Repeats with the same number are a pair; the others do not count. The interval is that of
    `over_repeats`, of the pairs' ratios. The side is `faster` or `slower` if 1 is outside of its 96
    % interval. As one of several `comparisons` of which any would decide, 1 must be outside of a
    wider interval too, so that chance decides as seldom as with a single ratio (Bonferroni). With
    fewer than three pairs no difference is significant. Without a pair both sides are samples of
    their own (`_two_samples`): it is the ratio of their medians, `n` is the smaller number of runs.
    """
    common = sorted(set(side) & set(other))
    if not common:
        if not side or not other:
            raise ValueError("a ratio needs values on both sides")
        left, right = (positive(list(values.values())) for values in (side, other))
        middle = median(left.tolist()) / median(right.tolist())
        result = _two_samples(middle, np.log(left), np.log(right), more_is_better, comparisons)
        if result.low is None or result.high is None:
            return result
        result = replace(result, low=math.exp(result.low), high=math.exp(result.high))
        return replace(
            result, more=more_repeats(result, comparisons) if result.verdict == CANNOT_TELL else 0
        )
    pairs = positive([side[repeat] for repeat in common]) / positive(
        [other[repeat] for repeat in common]
    )
    logs, interval = np.log(pairs), over_repeats(pairs.tolist())
    judged = _judged(logs, more_is_better, comparisons, NOISE)
    result = Comparison(interval.middle, interval.low, interval.high, interval.n, **judged)
    return replace(
        result, more=more_repeats(result, comparisons) if result.verdict == CANNOT_TELL else 0
    )


def difference(side: Mapping[Any, float], other: Mapping[Any, float]) -> Comparison:
    """Return a side minus the other, by pairs of repeats as in `ratio`; values may have any sign.

    The verdict is `faster` where the side's values are significantly larger, `slower` where they
    are significantly smaller.

    The result is the median of the pairs' differences, with its 95 % confidence interval: Student's
    t up to 4 pairs, order statistics from 5 on.
    """
    common = sorted(set(side) & set(other))
    if not common:
        if not side or not other:
            raise ValueError("a difference needs values on both sides")
        left, right = (
            np.array(list(values.values()), dtype=np.float64) for values in (side, other)
        )
        return _two_samples(median(left.tolist()) - median(right.tolist()), left, right, True)
    pairs = np.array([side[repeat] - other[repeat] for repeat in common], dtype=np.float64)
    low, high = median_bounds(pairs, LEVEL) or (None, None)
    return Comparison(median(pairs.tolist()), low, high, len(pairs), **_judged(pairs, True))


def control_false_discoveries(
    pairs: Sequence[Comparison], more_is_better: bool = True, same: float = 1.0
) -> list[Comparison]:
    """Control the false discovery rate over a table of comparisons.

    Among the significant ones, at most one in 20 is wrong, on average over many studies; where no
    two sides differ, none is significant in 95 % of studies. `same` is the value at which two sides
    are equal: 1 for ratios, 0 for differences.

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

    def error_of(pair: Comparison) -> tuple[float, float]:
        """Return the degrees of freedom and the standard error of the pairs' mean."""
        if all_of_them:
            return pooled_error(pair, all_of_them, NOISE if same else 0.0)
        more, least = (further, LEAST) if pair.n <= FEW else (0.0, LEAST_OF_MORE)
        return more + pair.n - 1, max(
            pair.spread, NOISE if same else 0.0, least * usual
        ) / math.sqrt(pair.n)

    def chance(pair: Comparison) -> float:
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

    def judged(pair: Comparison) -> Comparison:
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
            width = student_t(1 - (1 - LEVEL) * share, freedom) * error
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


def pool(pairs: Sequence[Comparison]) -> Pool | None:
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


def pooled_error(pair: Comparison, pooled: Pool, noise: float = NOISE) -> tuple[float, float]:
    """Return the degrees of freedom and the standard error of a comparison's mean, by its own
    spread and the pool's.
    """
    freedom = pooled.free + pair.n - 1
    own = max(pair.spread, noise)
    deviation = math.sqrt((pooled.free * pooled.spread**2 + (pair.n - 1) * own**2) / freedom)
    return freedom, max(deviation, pooled.spread) / math.sqrt(pair.n)


def _judged(
    x: Floats, more_is_better: bool, comparisons: float = 1, noise: float = 0.0
) -> dict[str, Any]:
    """Return the verdict on these pairs, which are 0 where both sides are equal, and what
    `control_false_discoveries` needs to judge again: fields of `Comparison`.

    As one of several `comparisons` of which any would decide, 0 must lie outside of a wider
    interval by Student's t as well (Bonferroni).
    """
    limit, sure, mean = 1 - VERDICT_LEVEL, median_bounds(x, VERDICT_LEVEL, noise), float(x.mean())
    if sure is None:
        return {}
    judged: dict[str, Any] = {"mean": mean, "spread": standard_deviation(x)}
    if len(x) >= FEWEST and (sure[0] > 0 or sure[1] < 0):
        error = max(judged["spread"], noise) / math.sqrt(len(x))
        judged["p"] = min(
            limit, float(2 * special.stdtr(len(x) - 1, -abs(mean) / error)) if error else 0.0
        )
        if judged["p"] <= limit / comparisons:
            judged["verdict"] = FASTER if (sure[0] > 0) == more_is_better else SLOWER
    return judged


def _two_samples(
    middle: float, left: Floats, right: Floats, more_is_better: bool, comparisons: float = 1
) -> Comparison:
    """Compare two samples without pairs: return their difference with its interval, by Student's t
    for spreads that may differ.

    It has the degrees of freedom of the smaller side, which is conservative. `spread` is such that
    `control_false_discoveries` finds the same error. Without two values on each side there is no
    interval.

    Source: Welch 1947, Biometrika 34:28; Hsu 1938, Statistical Research Memoirs 2:1, for the
    smaller side.
    """
    n = min(len(left), len(right))
    if n < 2:
        return Comparison(middle, None, None, 1)
    mean = float(left.mean() - right.mean())
    spreads = [max(standard_deviation(side), NOISE) for side in (left, right)]
    error = math.sqrt(
        sum(spread**2 / len(side) for spread, side in zip(spreads, (left, right), strict=True))
    )
    width, limit = student_t(LEVEL, n - 1) * error, 1 - VERDICT_LEVEL
    p = float(2 * special.stdtr(n - 1, -abs(mean) / error))
    verdict = CANNOT_TELL
    if n >= FEWEST and p <= limit / comparisons:
        verdict = FASTER if (mean > 0) == more_is_better else SLOWER
    low, high = mean - width, mean + width
    return Comparison(
        middle, low, high, n, verdict=verdict, p=p, mean=mean, spread=error * math.sqrt(n)
    )


def more_repeats(
    ratio: Comparison, comparisons: float = 1, free: float = 0.0, spread: float | None = None
) -> int | None:
    """Estimate how many more pairs would give a verdict with a power of 80 %, if difference and
    spread are as seen so far.

    None for fewer than two pairs, and where no number below 10 000 would do. `free` and `spread`
    are the degrees of freedom and the spread that other pairs add
    (`control_false_discoveries`). Source: power of the
    t test from the noncentral t distribution; for more than 4 pairs, the error of a median of n
    normal values, sqrt(pi / 2n) of their spread.
    """
    effect, spread = abs(math.log(ratio.middle)), ratio.spread if spread is None else spread
    if math.isnan(spread):
        return None
    if spread == 0:
        return max(1, FEWEST - ratio.n) if effect else None
    level = 1 - (1 - VERDICT_LEVEL) / comparisons
    for n in range(max(FEWEST, ratio.n + 1), FEW + 1):
        limit = student_t(level, n - 1 + free)
        if 1 - special.nctdtr(n - 1 + free, effect / spread * math.sqrt(n), limit) >= POWER:
            return n - ratio.n
    needed = float(special.ndtri(0.5 + level / 2) + special.ndtri(POWER))
    if effect == 0:
        return None
    n = math.ceil((1 if free > 1 else math.pi / 2) * (needed * spread / effect) ** 2)
    return max(n, FEW + 1, ratio.n + 1) - ratio.n if n <= MOST else None


def detectable_ratio(repeats: int, spread: float, comparisons: float = 1) -> float | None:
    """Return the smallest ratio of two sides that is found significant with a power of 80 % from so
    many pairs; None for too few pairs.

    `spread` is the standard deviation of the logarithm of one run. Source: as for `more_repeats`,
    the power of the t test from the noncentral t distribution.
    """
    if repeats < FEWEST:
        return None
    limit = student_t(1 - (1 - VERDICT_LEVEL) / comparisons, repeats - 1)
    least, most = 0.0, 10 * limit
    while most - least > 1e-3 * limit:
        middle = (least + most) / 2
        detected = 1 - special.nctdtr(repeats - 1, middle, limit) >= POWER
        least, most = (least, middle) if detected else (middle, most)
    return math.exp(most * math.sqrt(2 / repeats) * max(spread, NOISE))
