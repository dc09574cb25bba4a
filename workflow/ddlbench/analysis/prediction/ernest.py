"""Ernest's four terms: time(G) = t0 + t1 work / G + t2 log G + t3 G, none below zero.

Ernest keeps the work constant; here it grows with the workers (the batch per worker stays), so the time of a step is
t0 + t1 + t2 log2 G + t3 G. The first two cannot be told apart and are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddlbench.analysis.prediction import Measured, Prediction, _curve

if TYPE_CHECKING:
    from ddlbench.analysis.prediction import Floats
    from ddlbench.analysis.prediction._priors import Priors

LEAST_POINTS = 2
SOURCE = "Venkataraman et al. 2016, NSDI, Ernest, section 3.1"


def predict(
    measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float], priors: Priors
) -> Prediction:
    import numpy as np
    from scipy.optimize import nnls

    _curve.need(measured, LEAST_POINTS, "ernest")
    counts, batches = np.array(measured.workers, float), np.array(measured.batch_per_worker)
    step_s = counts * batches / np.array(measured.images_per_s)
    # Each row divided by its time: relative errors count, as for the other models.
    terms = nnls(_terms(counts, batches) / step_s[:, None], np.ones(len(counts)))[0]
    wanted, local = np.array(workers, float), np.array(batch_per_worker)
    return Prediction(wanted * local / np.maximum(_terms(wanted, local) @ terms, 1e-12))


def _terms(workers: Floats, batches: Floats) -> Floats:
    import numpy as np

    return np.column_stack([batches, np.log2(workers), workers])
