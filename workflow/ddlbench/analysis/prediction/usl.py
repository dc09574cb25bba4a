"""The Universal Scalability Law: contention a and crosstalk b. S(G) = G / (1 + a (G - 1) + b G (G - 1))."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddlbench.analysis.prediction import Measured, Prediction, _curve

if TYPE_CHECKING:
    from ddlbench.analysis.prediction import Floats
    from ddlbench.analysis.prediction._priors import Priors

LEAST_POINTS = 3
SOURCE = "Gunther 2007, Guerrilla Capacity Planning, doi:10.1007/978-3-540-31010-5"


def _curve_of(workers: Floats, parameters: Floats) -> Floats:
    contention, crosstalk = parameters
    rate: Floats = workers / (1 + contention * (workers - 1) + crosstalk * workers * (workers - 1))
    return rate


def predict(
    measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float], priors: Priors
) -> Prediction:
    _curve.need(measured, LEAST_POINTS, "usl")
    return _curve.fit(_curve_of, [(0.001, 0.1), (1e-6, 1e-3)], (0.0, 1.0), measured, workers)
