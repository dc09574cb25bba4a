"""Whether rates drift while a study is made, as on a machine that becomes hot. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ddlbench.analysis.intervals import LEVEL, positive, student_t

DRIFT_LEVEL = 0.99  # level of a drift: of 40 steady studies at most one should show a drift


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
    times, logs = np.asarray(times_s, dtype=np.float64), np.log(positive(rates))
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
    width, sure = (student_t(level, free) * error for level in (LEVEL, DRIFT_LEVEL))
    bounds = math.exp(slope - width), math.exp(slope + width)
    return Drift(math.exp(slope), *bounds, len(logs), abs(slope) > sure)
