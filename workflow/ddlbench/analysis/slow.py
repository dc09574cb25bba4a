"""What is called slow: one value against those of its like. `nodes.py` asks it of records.

A value is slow when it is more than three robust standard deviations below the median of the
others, and more than a tenth below it. Robust: 1.4826 times the median absolute deviation, which
estimates the standard deviation of normal values and which up to half of the values cannot move
(Rousseeuw and Croux 1993, doi:10.1080/01621459.1993.10476408). The value itself is not among the
others: of few values it would move the median and widen the deviation, and so hide. Of two values
the deviation of the only other one is zero, and the tenth alone decides.
"""

from collections.abc import Sequence

import numpy as np

DEVIATIONS = 3.0
SHARE = 0.1
NORMAL = 1.4826  # a normal distribution's standard deviation, in median absolute deviations


def deviation(values: Sequence[float]) -> float:
    """Return the robust standard deviation of values, in their unit; 0 for a single one."""
    return float(NORMAL * np.median(np.abs(np.asarray(values) - np.median(values))))


def is_slow(value: float, others: Sequence[float]) -> bool:
    """Return whether a rate is slow compared with those of others.

    False if there are no others: there is no standard of comparison.
    """
    if not others:
        return False
    middle = float(np.median(others))
    return bool(middle - value > max(DEVIATIONS * deviation(others), SHARE * middle))
