"""What counts as an outlier: among the steps of a run (a stall), and among hosts or ranks (a slow
one). Pure.

A step is an outlier when it is above the third quartile by three interquartile ranges, and by 10 %
of the median: `stalls`.

A rate is slow (`is_slow`) when it is more than three robust standard deviations below the median of
the others, and more than a tenth below it. Robust: 1.4826 times the median absolute deviation, which
estimates the standard deviation of normal values and which up to half of the values cannot move
(Rousseeuw and Croux 1993, doi:10.1080/01621459.1993.10476408). The value itself is not among the
others: of few values it would move the median and widen the deviation, and so hide. Of two values
the deviation of the only other one is zero, and the tenth alone decides. `slow_nodes.py` asks it of
records.

A repeat of a run is judged by the audit's rule slow-repeat (`audit/rules/repeats.py`) instead: more
than 10 % and more than one ordinary standard deviation below the median. Repeats are few, often
three, of which two others give no robust deviation worth the name; and the rule only asks people to
look at the run, where `is_slow` blames a host or a rank.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ddlbench.analysis.intervals import Floats

DEVIATIONS = 3.0
SHARE = 0.1
NORMAL = 1.4826  # a normal distribution's standard deviation, in median absolute deviations


def stalls(step_s: ArrayLike) -> int:
    """Count the outliers among step times: steps beyond the third quartile by three interquartile
    ranges, and by 10 % of the median.

    They are counted and stay in every rate. Source: Tukey 1977, Exploratory Data Analysis, "far
    out".
    """
    x = step_times(step_s)
    return int(np.sum(x > outlier_limit(x)))


def outlier_limit(x: Floats) -> float:
    """Return the outlier limit: a step beyond it is an outlier."""
    low, middle, high = np.quantile(x, (0.25, 0.5, 0.75))
    return float(max(high + 3 * (high - low), 1.1 * middle))


def step_times(values: ArrayLike) -> Floats:
    """Return finite numbers, at least 0, and not all of them 0; raise ValueError for others."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or not (np.isfinite(x) & (x >= 0)).all() or not x.any():
        raise ValueError("step times must be finite, at least 0, and not all of them 0")
    return x


def deviation(values: Sequence[float]) -> float:
    """Return the robust standard deviation of values, in their unit; 0 for a single one."""
    return float(NORMAL * np.median(np.abs(np.asarray(values) - np.median(values))))


def is_slow(value: float, others: Sequence[float]) -> bool:
    """Return whether a rate is slow compared with those of others.

    False if there are no others: there is no standard of comparison.
    """
    if not others:
        return False
    median = float(np.median(others))
    return bool(median - value > max(DEVIATIONS * deviation(others), SHARE * median))
