"""Confidence intervals over repeats: the median of a few runs, and how far it may be from the true
one.

docs/statistics.md says why each method was chosen; `bench/intervals.py` measures on studies with
known truth how often the intervals hold it. All functions are pure. `significance.py` makes
verdicts of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median  # of a few values ten times as fast as numpy's

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import (
    special,
)  # not scipy.stats: that takes 0.8 s to import, and every run and figure would pay it

Floats = NDArray[np.float64]
LEVEL = 0.95  # of intervals
# of the interval that a verdict rests on: false verdicts stay below 5 % where intervals hold 95 %
VERDICT_LEVEL = 0.96
FEW = 4  # up to so many repeats Student's t, beyond it order statistics
# Of 5 repeats the range holds the median in 93.75 % of studies, whatever the distribution:
# stretched by this share of its width at both ends it holds it as often as the level says
# (bench/intervals.py).
RANGE_INFLATION_N5 = {LEVEL: 0.03, VERDICT_LEVEL: 0.08}
# Student's t of 2 repeats holds the median in 92.5 % of studies where one run of five meets a slow
# node. Stretched by this factor it holds it in 93.5 % there and in 96 % on a quiet machine
# (bench/intervals.py).
T_INFLATION_N2 = 1.12
# No two runs agree more closely: the quietest of nine systems with five results in MLPerf 2.0
# varies by 0.045 %.
NOISE = 0.0005


@dataclass(frozen=True)
class Interval:
    """A median with its confidence interval over `n` repeats; without bounds where n = 1, which
    says nothing of other runs.
    """

    middle: float
    low: float | None
    high: float | None
    n: int


def over_repeats(values: Sequence[float], noise: float = NOISE) -> Interval:
    """Return the median of positive values of repeats, with its 95 % confidence interval.

    Up to 4 repeats: Student's t on logarithms. From 5 on: order statistics, interpolated, which
    assume no distribution, so that slow nodes do not pull them. A percentile bootstrap of 3 repeats
    holds the truth in 90 % of studies. `noise` is how far repeats differ at least; counts have
    none.

    Source: Hettmansperger & Sheather 1986, Statistics & Probability Letters 4:75.
    """
    x = positive(values)
    logs = np.log(x)
    # Of an even number the geometric mean of the two in the middle.
    middle = median(x.tolist()) if len(x) % 2 else math.exp(median(logs.tolist()))
    bounds = median_bounds(logs, LEVEL, noise)
    if bounds is None:
        return Interval(middle, None, None, len(logs))
    return Interval(middle, math.exp(bounds[0]), math.exp(bounds[1]), len(logs))


@lru_cache
def student_t(level: float, free: float) -> float:
    """Return Student's t for an interval of this level."""
    return float(special.stdtrit(free, 0.5 + level / 2))


def median_bounds(x: Floats, level: float, noise: float = 0.0) -> tuple[float, float] | None:
    """Return the confidence interval of the median of these values; None for fewer than two.

    It is never narrower than that of values with the spread `noise`.
    """
    n = len(x)
    if n < 2:
        return None
    low, high = _bounds(x, level)
    middle, width = median(x.tolist()), student_t(level, n - 1) * noise / math.sqrt(n)
    return min(low, middle - width), max(high, middle + width)


def _bounds(x: Floats, level: float) -> tuple[float, float]:
    """Return the confidence interval of the median, whatever the noise: by Student's t for few
    values, else by order statistics.
    """
    n = len(x)
    if n <= FEW:
        width = (
            student_t(level, n - 1)
            * standard_deviation(x)
            / math.sqrt(n)
            * (T_INFLATION_N2 if n == 2 else 1.0)
        )
        return float(x.mean()) - width, float(x.mean()) + width
    x = np.sort(x)
    if n == FEW + 1:
        extra_width = RANGE_INFLATION_N5[level] * float(x[-1] - x[0])
        return float(x[0]) - extra_width, float(x[-1]) + extra_width
    # The k-th values from below and above hold the median with this probability; k and k + 1
    # enclose the level.
    coverage = 1 - 2 * special.bdtr(np.arange(n // 2), n, 0.5)
    k = int(np.sum(coverage >= level))
    share = (coverage[k - 1] - level) / (coverage[k - 1] - coverage[k])
    weight = float((n - k) * share / (k + (n - 2 * k) * share))
    low = (1 - weight) * x[k - 1] + weight * x[k]
    high = (1 - weight) * x[n - k] + weight * x[n - k - 1]
    return float(low), float(high)


def standard_deviation(x: Floats) -> float:
    """Return the standard deviation of at least two values; numpy's takes four times as long for a
    few.
    """
    away = x - x.sum() / len(x)
    return math.sqrt(float(away @ away) / (len(x) - 1))


def positive(values: ArrayLike) -> Floats:
    """Return finite numbers above zero, at least one; raise ValueError for others."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or not len(x) or not (np.isfinite(x) & (x > 0)).all():
        raise ValueError("rates and times must be finite numbers above 0, at least one")
    return x
