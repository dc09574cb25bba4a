"""What is called slow: one value against those of its like. The preflight asks it of nodes, `nodes.py` of records.

A value is slow when it is more than three robust standard deviations below the median of the others, and more than a
tenth below it. Robust: 1.4826 times the median absolute deviation, which estimates the standard deviation of normal
values and which up to half of the values cannot move (Rousseeuw and Croux 1993, doi:10.1080/01621459.1993.10476408).
The value itself is not among the others: of few values it would move the median and widen the deviation, and so hide.
Of two values the deviation of the only other one is zero, and the tenth alone decides.
"""

from collections.abc import Sequence

import numpy as np

DEVIATIONS = 3.0
SHARE = 0.1
NORMAL = 1.4826  # a normal distribution's standard deviation, in median absolute deviations


def deviation(values: Sequence[float]) -> float:
    """The robust standard deviation of values, in their unit; 0 of a single one."""
    return float(NORMAL * np.median(np.abs(np.asarray(values) - np.median(values))))


def error_of_median(values: Sequence[float]) -> float:
    """The standard error of the median of repeated measurements, in their unit, as if they were normal."""
    return float(1.2533 * deviation(values) / len(values) ** 0.5)


def below(value: float, others: Sequence[float]) -> float:
    """How far a value is below the median of the others, as a share of it; negative above it."""
    middle = float(np.median(others))
    return 1 - value / middle if middle > 0 else 0.0


def is_slow(value: float, others: Sequence[float], error: float = 0.0) -> bool:
    """Whether a rate is slow beside those of others. `error` is its own standard error, in its unit.

    False if there are no others: nothing says what is right.
    """
    if not others:
        return False
    middle, spread = float(np.median(others)), (deviation(others) ** 2 + error**2) ** 0.5
    return bool(middle - value > max(DEVIATIONS * spread, SHARE * middle))
