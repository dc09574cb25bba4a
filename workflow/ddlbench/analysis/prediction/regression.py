"""A regression of the rate per worker that has learnt from published series.

    ln x = a - s1 log2 min(G, P) - s2 [G > P] - s3 log2 max(G / P, 1) - s4 (ln(1 + h/b) - ln(1 + h/b0)) + W(log2 G) + e

x is the rate of one worker, G the workers, P those of a node, b the batch per worker (b0 that of the first point), and
h = c0 x0 the images that fit into the fixed time of a step (c0 = 4 ms; x0 the first point's x). `a` is free. The slopes
s are normal around what other series had (`_priors.py`). W is a Brownian motion over doublings: near measured counts
the curve follows the points, far from them it goes back to the slopes. e is noise. One unknown factor scales all
variances of a series. An interval reaches so many standard deviations as held 95 % of published all-reduce series that
the priors had not seen: one number within a node, one beyond it; it grows with
the distance beyond three doublings.

Source: universal kriging with a drift, Cressie 1993, Statistics for Spatial Data, doi:10.1002/9781119115151, 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddlbench.analysis.prediction import Measured, Prediction, TooLittleError
from ddlbench.core.plural import count_of

if TYPE_CHECKING:
    from ddlbench.analysis.prediction import Floats
    from ddlbench.analysis.prediction._priors import Priors

FIXED_S = 0.004  # c0: time of a step that does not depend on the batch [s]
SEEN = 3  # doublings beyond the largest known count that published series tell of
_FREE = 100.0  # variance of `a`, so large that its prior says nothing


def drift(workers: Floats, batch: Floats, node: int, rate0: float, batch0: float) -> Floats:
    """What each slope is multiplied with, shape (points, 4). `rate0` is the first point's images/s of one worker."""
    import numpy as np

    fixed = FIXED_S * rate0  # images
    return np.column_stack(
        [
            -np.log2(np.minimum(workers, node)),
            -(workers > node).astype(float),
            -np.log2(np.maximum(workers / node, 1)),
            -(np.log1p(fixed / batch) - np.log1p(fixed / batch0)),
        ]
    )


def predict(
    measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float], priors: Priors
) -> Prediction:
    """Raises TooLittleError if it is asked beyond a node from points within one: nobody predicts the network."""
    return elsewhere(measured, workers, batch_per_worker, priors)


def elsewhere(
    measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float], priors: Priors, at: int | None = None
) -> Prediction:
    """Predicts as `predict` does, for a machine with `at` workers per node, if that is given."""
    import numpy as np

    node = measured.workers_per_node
    if max(workers) > (at or node) and node >= measured.workers[-1]:
        raise TooLittleError(
            f"all measured counts lie within one node of {count_of(node, 'worker')}: what lies beyond is not "
            "predicted, because from such points the median error was 9 % and one in ten over 80 %; measure "
            f"{2 * node} workers"
        )
    asked = np.array(workers, float)
    centre, variance = posterior(measured, asked, np.array(batch_per_worker, float), priors, at)
    reach = _reach(measured, asked, at or node, priors) * np.sqrt(np.diag(variance))
    return Prediction(np.exp(centre) * asked, np.exp(centre - reach) * asked, np.exp(centre + reach) * asked)


def _reach(measured: Measured, asked: Floats, node: int, priors: Priors) -> Floats:
    """How many standard deviations a 95 % interval reaches; beyond `SEEN` doublings more, because few series do."""
    import numpy as np

    doublings = np.log2(asked / measured.workers[-1])
    return np.where(asked > node, priors.reach[1], priors.reach[0]) * np.maximum(1.0, doublings / SEEN)


def lost(measured: Measured, few: int, workers: int, batch: float, priors: Priors) -> tuple[float, float, float]:
    """What a step takes longer on `workers` than on `few`, as a share of the latter: (at least, likely, at most).

    None of them is below 0. The rates of both are known together, so that an error which both share does not count.
    """
    import numpy as np

    if workers <= few:
        return 0.0, 0.0, 0.0
    asked = np.array([float(few), float(workers)])
    centre, variance = posterior(measured, asked, np.array([batch, batch]), priors)
    spread = float(variance[0, 0] + variance[1, 1] - 2 * variance[0, 1]) ** 0.5
    reach = float(_reach(measured, asked, measured.workers_per_node, priors)[1]) * spread
    middle = float(centre[0] - centre[1])
    low, likely, high = (max(0.0, float(np.expm1(middle + end))) for end in (-reach, 0.0, reach))
    return low, likely, high


def posterior(
    measured: Measured, asked: Floats, batch: Floats, priors: Priors, node: int | None = None
) -> tuple[Floats, Floats]:
    """(mean of ln x at `asked`, its covariance), a run's noise included.

    `node` are the workers of a node where `asked` is about another machine than `measured`. What its node changes is
    then drawn anew from what other series had, because the measured points say nothing of it.
    """
    import numpy as np

    known = np.array(measured.workers, float)
    rates = np.log(np.array(measured.images_per_s) / known)
    batches = np.array(measured.batch_per_worker, float)
    first = (measured.workers_per_node, float(np.exp(rates[0])), batches[0])
    there = drift(asked, batch, *first)
    elsewhere = there if node is None else drift(asked, batch, node, *first[1:])
    rows = np.vstack([drift(known, batches, *first), elsewhere])
    counts = np.log2(np.concatenate([known, asked]))
    covariance = (rows * np.array(priors.slope_sd) ** 2) @ rows.T
    covariance += priors.walk * np.minimum.outer(counts, counts) + priors.noise * np.eye(len(counts)) + _FREE
    n = len(known)
    changed = (elsewhere - there) * np.array(priors.slope_sd)
    covariance[n:, n:] += changed @ changed.T
    slopes = np.array(priors.slope)
    residual = rates - rates[0] - rows[:n] @ slopes
    solved = np.linalg.solve(covariance[:n, :n], np.column_stack([residual, covariance[:n, n:]]))
    mean = rates[0] + rows[n:] @ slopes + covariance[n:, :n] @ solved[:, 0]
    scale = covariance[n:, n:] - covariance[n:, :n] @ solved[:, 1:]
    return mean, scale * (priors.freedom + float(residual @ solved[:, 0])) / (priors.freedom + n - 1)


def next_run(
    measured: Measured, target: int, batch: float, candidates: dict[int, float], priors: Priors
) -> tuple[int, float] | None:
    """Which count to measure next for the rate at `target`: (workers, how much narrower the interval gets per hour).

    `candidates` are worker counts with the GPU hours of a run each. The gain is the part of the interval's width (of
    ln x) that one more point takes away, if it lies where the curve expects it. None if no candidate helps.
    """
    import numpy as np

    asked, local = np.array([float(target)]), np.array([batch])
    now = float(posterior(measured, asked, local, priors)[1][0, 0])
    gains: dict[int, float] = {}
    for count, hours in candidates.items():
        if count in measured.workers or hours <= 0:
            continue
        expected = float(np.exp(posterior(measured, np.array([float(count)]), local, priors)[0][0])) * count
        points = sorted(
            [
                *zip(measured.workers, measured.images_per_s, measured.batch_per_worker, strict=True),
                (count, expected, batch),
            ]
        )
        more = Measured(
            tuple(p[0] for p in points),
            tuple(p[1] for p in points),
            tuple(p[2] for p in points),
            measured.workers_per_node,
        )
        then = float(posterior(more, asked, local, priors)[1][0, 0])
        gains[count] = (1 - (then / now) ** 0.5) / hours
    best = max(gains, key=lambda count: gains[count], default=None)
    return None if best is None or gains[best] <= 0 else (best, gains[best])
