"""Pollux's step time, where compute also grows by the wait for the slowest of G workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddlbench.analysis.prediction import Measured, Prediction, _curve, pollux

if TYPE_CHECKING:
    from ddlbench.analysis.prediction._priors import Priors

LEAST_POINTS = 3
SOURCE = "as pollux; the expected maximum of G normal variables is about their deviation times sqrt(2 ln G)"


def predict(
    measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float], priors: Priors
) -> Prediction:
    _curve.need(measured, LEAST_POINTS, "pollux-stragglers")
    return pollux.fit(measured, workers, stragglers=True)
