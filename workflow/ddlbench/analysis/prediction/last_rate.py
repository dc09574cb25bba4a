"""The last measured rate, less what a doubling of workers cost in published series.

    ln x = line(G, b) + left(G)
    line = - s1 log2 min(G, P) - s2 [G > P] - s3 log2 max(G / P, 1) - ln(1 + h/b)

x is the rate of one worker, G the workers, P those of a node, b the batch per worker, and h = c0 x0
the images that fit into the fixed time of a step (c0 = 4 ms; x0 the first point's x). The slopes s
are medians over published series, each source counted once (`analysis/prediction_priors.py`).
`left` is what measured points have beyond the line: between them by log2 G, beyond them as at the
nearest.

The error's variance grows with the doublings to the nearest measured point, and with what the batch
changes. It is scaled by how far the series' own points are off the line from one to the next,
beside those of others. A 95 % interval reaches so many standard deviations as held 95 % of
published all-reduce series that the priors had not seen: one number within a node, one beyond it.
Beyond three doublings it reaches further, because few series tell of that. From one worker alone
nothing says what workers share: the interval reaches further down (`ALONE`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ddlbench.analysis import prediction_priors
from ddlbench.analysis.prediction import Measured, Prediction, TooLittleError
from ddlbench.core.formatting import count_of

if TYPE_CHECKING:
    from ddlbench.analysis.prediction import Floats
    from ddlbench.analysis.prediction_priors import Priors

FIXED_S = 0.004  # c0: time of a step that does not depend on the batch [s]
BATCH_SD = 0.5  # by which share the batch's part of the line may be wrong
NOISE = 0.5  # variance of two runs' own noise, in doublings
OTHERS = 2  # as how many steps between points the other series count
# From one worker alone an interval reaches so much further down: of 32 published rates of a whole
# node one in ten was 40 % below what that predicts, or more, where workers share a bus, cores or a
# file system; none was 6 % above.
ALONE = 2.0
SEEN = 3  # doublings beyond the largest known count that published series cover


def parts(workers: Floats, batch: Floats, node: int, rate0: float) -> Floats:
    """Return the factors of s1, s2, s3 and 1 in the model, shape (points, 4).

    `rate0` is the first point's images/s of one worker.
    """
    import numpy as np

    beyond = np.maximum(workers / node, 1)
    terms = -np.log2(np.minimum(workers, node)), -(workers > node).astype(float), -np.log2(beyond)
    return np.column_stack([*terms, -np.log1p(FIXED_S * rate0 / batch)])


def steps(measured: Measured, slope: Sequence[float]) -> tuple[Floats, Floats]:
    """Return (the residuals of points from the line, how much these change from one point to the
    next per root of their distance); the step beyond a node is no such change.
    """
    import numpy as np

    counts, node = np.array(measured.workers, float), measured.workers_per_node
    rates = np.log(np.array(measured.images_per_s) / counts)
    line = parts(counts, np.array(measured.batch_per_worker, float), node, float(np.exp(rates[0])))
    residuals = rates - line @ np.array([*slope, 1.0])
    inside = (counts[:-1] > node) | (counts[1:] <= node)
    return residuals, (np.diff(residuals) / np.sqrt(np.diff(np.log2(counts)) + NOISE))[inside]


def predict(
    measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float], priors: Priors
) -> Prediction:
    """Predict the images/s of all workers with their 95 % confidence intervals.

    Raises TooLittleError if it is asked beyond a node from points within one, because nobody
    predicts the network; or for less than an image per worker.
    """
    import numpy as np

    if min(batch_per_worker) < 1:
        raise TooLittleError(
            "the global batch has fewer images than workers; each worker needs at least one"
        )
    node = measured.workers_per_node
    if max(workers) > node and node >= measured.workers[-1]:
        raise TooLittleError(
            f"all measured counts lie within one node of {count_of(node, 'worker')}: larger counts"
            " are not predicted, because from such points the median error was 9 % and one error in"
            f" ten was above 80 %; measure {2 * node} workers"
        )
    asked = np.array(workers, float)
    middle, spread = _expected(measured, asked, np.array(batch_per_worker, float), priors)
    reach = _reach(measured, asked, priors) * spread
    below = reach * (ALONE if measured.workers == (1,) else 1.0)
    return Prediction(
        np.exp(middle) * asked, np.exp(middle - below) * asked, np.exp(middle + reach) * asked
    )


def _expected(
    measured: Measured, asked: Floats, batch: Floats, priors: Priors
) -> tuple[Floats, Floats]:
    """Return (ln x at `asked`, its standard deviation), the noise of runs included."""
    import numpy as np

    counts, node, first = (
        np.array(measured.workers, float),
        measured.workers_per_node,
        measured.images_per_s[0],
    )
    first /= measured.workers[0]
    residuals, changes = steps(measured, priors.slope)
    line = parts(asked, batch, node, first)
    was = parts(counts, np.array(measured.batch_per_worker, float), node, first)[:, 3]
    scale = (OTHERS * priors.unsteady**2 + float(changes @ changes)) / (OTHERS + len(changes))
    variance = scale * (_doublings_to_nearest(counts, asked) + NOISE)
    variance += (BATCH_SD * (line[:, 3] - np.interp(np.log2(asked), np.log2(counts), was))) ** 2
    middle = line @ np.array([*priors.slope, 1.0]) + np.interp(
        np.log2(asked), np.log2(counts), residuals
    )
    return middle, np.sqrt(variance)


def _doublings_to_nearest(counts: Floats, asked: Floats) -> Floats:
    """Return the doublings to the nearest known count."""
    import numpy as np

    away: Floats = np.abs(np.log2(asked)[:, None] - np.log2(counts)).min(axis=1)
    return away


def _reach(measured: Measured, asked: Floats, priors: Priors) -> Floats:
    """Return how many standard deviations a 95 % interval reaches; more beyond `SEEN` doublings,
    because few series go so far.
    """
    import numpy as np

    within, beyond = priors.reach
    doublings = np.log2(asked / measured.workers[-1])
    reach = np.where(asked > measured.workers_per_node, beyond, within)
    return reach * np.maximum(1.0, doublings / SEEN)


def next_run(measured: Measured, target: int, candidates: dict[int, float]) -> int | None:
    """Choose the worker count to measure next for the rate at `target`: the one that narrows its
    interval most per GPU hour.

    `candidates` are worker counts with the GPU hours of a run each. None if no candidate helps.
    """
    import numpy as np

    counts, asked = np.array(measured.workers, float), np.array([float(target)])
    now = float(_doublings_to_nearest(counts, asked)[0])
    gains = {
        count: (
            (
                1
                - (
                    (float(_doublings_to_nearest(np.append(counts, count), asked)[0]) + NOISE)
                    / (now + NOISE)
                )
                ** 0.5
            )
            / hours
        )
        for count, hours in candidates.items()
        if hours > 0
    }
    best = max(gains, key=lambda count: gains[count], default=None)
    return best if best is not None and gains[best] > 0 else None


def of_worker(
    rates: Mapping[int, float], workers: int, batch_per_worker: float, workers_per_node: int
) -> tuple[float, float, float] | None:
    """Predict (low, likely, high rate of one worker) at another number of workers, from rates of
    one at others; None where nothing can be predicted, or where there is no numpy.
    """
    totals = tuple(count * rate for count, rate in rates.items())
    measured = Measured(tuple(rates), totals, (batch_per_worker,) * len(rates), workers_per_node)
    try:
        forecast = predict(measured, [workers], [batch_per_worker], prediction_priors.read())
    except (TooLittleError, ImportError):
        return None
    low, likely, high = (
        float(ends[0]) / workers for ends in (forecast.low, forecast.images_per_s, forecast.high)
    )
    return low, likely, high
