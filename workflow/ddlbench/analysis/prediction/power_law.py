"""A power of the workers: S(G) = G^p."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddlbench.analysis.prediction import Measured, Prediction, _curve

if TYPE_CHECKING:
    from ddlbench.analysis.prediction import Floats
    from ddlbench.analysis.prediction._priors import Priors

LEAST_POINTS = 2
SOURCE = "a straight line in log-log axes"


def _curve_of(workers: Floats, parameters: Floats) -> Floats:
    power: Floats = workers ** parameters[0]
    return power


def predict(
    measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float], priors: Priors
) -> Prediction:
    _curve.need(measured, LEAST_POINTS, "power-law")
    return _curve.fit(_curve_of, [(0.9,)], (0.0, 1.5), measured, workers)
