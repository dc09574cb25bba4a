"""Nine published models of scaling, which `prediction.py` measures the package's own one against.

Each is a function in `MODELS`: (series, worker counts, batches per worker) -> images/s of all
workers at each count. None of them gives intervals. A series with fewer points than a model needs
raises TooLittleError.
"""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from ddlbench.analysis.prediction import Measured, TooLittleError
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls

Floats = NDArray[np.float64]
Model = Callable[[Measured, Sequence[int], Sequence[float]], Floats]
# Rate of all workers in units of the rate of one, by number of workers, parameters, and workers of
# a node.
Curve = Callable[[Floats, Floats, int], Floats]


def need(measured: Measured, points: int, model: str) -> None:
    """Raises TooLittleError if the series has fewer points."""
    if len(measured.workers) < points:
        raise TooLittleError(
            f"{model} needs {points} measured worker counts, there are {len(measured.workers)}"
        )


def fitted(
    name: str, points: int, curve: Curve, *starts: tuple[float, ...], most: float = 1.0
) -> Model:
    """The curve that is nearest to a series by the squares of relative errors, over a free rate of
    one worker.

    `starts` are the first guesses of each parameter, which lies between 0 and `most`; all
    combinations are tried and the best fit is kept.
    """

    def predict(
        measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float]
    ) -> Floats:
        need(measured, points, name)
        counts, rates = np.array(measured.workers, float), np.log(np.array(measured.images_per_s))
        node = measured.workers_per_node

        def errors(parameters: Floats) -> Floats:
            shape = np.log(np.maximum(curve(counts, parameters[1:], node), 1e-9))
            return np.asarray(parameters[0] + shape - rates)

        bounds = [-np.inf, *[0.0] * len(starts)], [np.inf, *[most] * len(starts)]
        fits = [
            least_squares(errors, [float(rates[0]), *start], bounds=bounds)
            for start in product(*starts)
        ]
        best = min(fits, key=lambda fit: float(fit.cost)).x
        return np.asarray(
            np.exp(best[0]) * np.maximum(curve(np.array(workers, float), best[1:], node), 1e-9)
        )

    return predict


def ideal(measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float]) -> Floats:
    """The ideal line of every speed-up figure: the last point's rate per worker, at every count."""
    return np.array(workers, float) * measured.images_per_s[-1] / measured.workers[-1]


def last_rate(
    measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float]
) -> Floats:
    """The last point's rate per worker, times 0.975 for each doubling beyond it, whatever the
    batch.
    """
    counts = np.array(workers, float)
    return ideal(measured, workers, batch_per_worker) * 0.975 ** np.log2(
        counts / measured.workers[-1]
    )


def ernest(measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float]) -> Floats:
    """Ernest's terms, none below zero: time(G) = t0 + t1 work / G + t2 log G + t3 G.

    Ernest keeps the work constant; here it grows with the workers (the batch per worker stays), so
    that the first two terms have the same shape and are one. Source: Venkataraman et al. 2016, NSDI,
    Ernest, section 3.1.
    """

    def terms(counts: Floats, batches: Floats) -> Floats:
        return np.column_stack([batches, np.log2(counts), counts])

    need(measured, 2, "ernest")
    counts, batches = np.array(measured.workers, float), np.array(measured.batch_per_worker)
    step_s = counts * batches / np.array(measured.images_per_s)
    # Each row divided by its time: relative errors count, as for the other models.
    weights = nnls(terms(counts, batches) / step_s[:, None], np.ones(len(counts)))[0]
    wanted, local = np.array(workers, float), np.array(batch_per_worker)
    return np.asarray(wanted * local / np.maximum(terms(wanted, local) @ weights, 1e-12))


def _pollux(counts: Floats, parameters: Floats, node: int) -> Floats:
    """Pollux's step time: (T_grad^g + T_sync^g)^(1/g), compute and communication that overlap in
    part.

    T_sync = 0 for one worker, l + r (G - 2) within a node, and with constants of its own beyond a
    node. g reaches from 1 (no overlap) to 10 (all of it). With a sixth parameter compute also grows
    by the wait for the slowest of G workers, the expected maximum of G normal step times: 1 + s
    sqrt(2 ln G).
    """
    near, near_more, far, far_more, overlap, spread = [*parameters, 0.0][:6]
    grow = np.maximum(counts - 2, 0)
    sync = np.where(counts > node, far + far_more * grow, near + near_more * grow)
    sync = np.where(counts > 1, sync, 0.0)
    compute = 1 + spread * np.sqrt(2 * np.log(counts))
    power = 1 + 9 * overlap
    return np.asarray(counts / (compute**power + sync**power) ** (1 / power))


_POLLUX = ((0.05,), (1e-4,), (0.1,), (1e-4,), (0.1, 0.5))
MODELS: dict[str, Model] = {
    # Amdahl 1967, AFIPS, doi:10.1145/1465482.1465560: a share s of the work is done by one worker
    # alone.
    "amdahl": fitted("amdahl", 2, lambda n, p, _: 1 / (p[0] + (1 - p[0]) / n), (0.001, 0.1)),
    "ernest": ernest,
    # Gustafson 1988, CACM 31(5), doi:10.1145/42411.42415: a share of the time is one worker's, as
    # the work grows.
    "gustafson": fitted("gustafson", 2, lambda n, p, _: n + p[0] * (1 - n), (0.01, 0.3)),
    "ideal": ideal,
    "last rate x 0.975": last_rate,
    # The form that straight efficiency plots over doublings suggest, never below a hundredth of G.
    "logarithmic": fitted(
        "logarithmic", 2, lambda n, p, _: n * np.maximum(1 - p[0] * np.log2(n), 0.01), (0.02,)
    ),
    # Qiao et al. 2021, OSDI, Pollux, equations 9 to 11; without its constant part of T_grad.
    "pollux": fitted("pollux", 3, _pollux, *_POLLUX),
    "pollux-stragglers": fitted("pollux-stragglers", 3, _pollux, *_POLLUX, (0.01,)),
    # A straight line in log-log axes.
    "power-law": fitted("power-law", 2, lambda n, p, _: n ** p[0], (0.9,), most=1.5),
    # Gunther 2007, Guerrilla Capacity Planning, doi:10.1007/978-3-540-31010-5: contention and
    # crosstalk.
    "usl": fitted(
        "usl",
        3,
        lambda n, p, _: n / (1 + p[0] * (n - 1) + p[1] * n * (n - 1)),
        (0.001, 0.1),
        (1e-6, 1e-3),
    ),
}
