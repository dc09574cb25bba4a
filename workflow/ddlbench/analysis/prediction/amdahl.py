"""Amdahl's law: a share s of the work is done by one worker alone. S(G) = 1 / (s + (1 - s) / G)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddlbench.analysis.prediction import Measured, Prediction, _curve

if TYPE_CHECKING:
    from ddlbench.analysis.prediction import Floats
    from ddlbench.analysis.prediction._priors import Priors

LEAST_POINTS = 2
SOURCE = "Amdahl 1967, AFIPS, doi:10.1145/1465482.1465560"


def _curve_of(workers: Floats, parameters: Floats) -> Floats:
    rate: Floats = 1 / (parameters[0] + (1 - parameters[0]) / workers)
    return rate


def predict(
    measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float], priors: Priors
) -> Prediction:
    _curve.need(measured, LEAST_POINTS, "amdahl")
    return _curve.fit(_curve_of, [(0.001, 0.1)], (0.0, 1.0), measured, workers)
