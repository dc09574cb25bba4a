"""The warm-up of a run: how many of its first steps are cut, and whether the rest is steady. Pure."""

import numpy as np
from numpy.typing import ArrayLike

from ddlbench.analysis.outliers import outlier_limit, step_times

BATCH = 5  # steps of a batch of MSER-5
# Mean times of lines: with fewer, MSER-5 cuts more than the first of a third of even runs, and says
# of every tenth to third that it is not steady.
FEWEST_MEANS = 10


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
    x = step_times(step_s)
    size = BATCH if len(x) >= 10 * BATCH else 1
    count = len(x) // size
    if count < 2:
        return min(1, len(x)), False
    # Whole batches from the end: the odd steps are the first ones, which are cut first.
    steps_left = np.minimum(x, outlier_limit(x))[len(x) - count * size :]
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


def warm_up_in_means(mean_s: ArrayLike) -> tuple[int, bool | None]:
    """Return how many of the first mean times are warm-up, and whether the rest is steady.

    `mean_s`: mean times of a step between two lines of a program [s]. They are what is independent:
    the steps between two lines have no times of their own. Of fewer than 10 only the first is cut,
    and nobody can tell whether the rest is steady (None); a single one is all there is.
    """
    x = step_times(mean_s)
    if len(x) < 2:
        return 0, False
    return warm_up(x) if len(x) >= FEWEST_MEANS else (1, None)
