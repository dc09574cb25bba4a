"""Each doubling costs the same part of the efficiency: S(G) = G (1 - c log2 G), never below a hundredth of G."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddlbench.analysis.prediction import Measured, Prediction, _curve

if TYPE_CHECKING:
    from ddlbench.analysis.prediction import Floats
    from ddlbench.analysis.prediction._priors import Priors

LEAST_POINTS = 2
SOURCE = "the form that straight efficiency plots over doublings suggest"


def _curve_of(workers: Floats, parameters: Floats) -> Floats:
    import numpy as np

    rate: Floats = workers * np.maximum(1 - parameters[0] * np.log2(workers), 0.01)
    return rate


def predict(
    measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float], priors: Priors
) -> Prediction:
    _curve.need(measured, LEAST_POINTS, "logarithmic")
    return _curve.fit(_curve_of, [(0.02,)], (0.0, 1.0), measured, workers)
