"""Gustafson's law: the work grows with the workers, and a share s of the time is not shared. S(G) = G + s (1 - G)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddlbench.analysis.prediction import Measured, Prediction, _curve

if TYPE_CHECKING:
    from ddlbench.analysis.prediction import Floats
    from ddlbench.analysis.prediction._priors import Priors

LEAST_POINTS = 2
SOURCE = "Gustafson 1988, CACM 31(5), doi:10.1145/42411.42415"


def _curve_of(workers: Floats, parameters: Floats) -> Floats:
    rate: Floats = workers + parameters[0] * (1 - workers)
    return rate


def predict(
    measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float], priors: Priors
) -> Prediction:
    _curve.need(measured, LEAST_POINTS, "gustafson")
    return _curve.fit(_curve_of, [(0.01, 0.3)], (0.0, 1.0), measured, workers)
