"""No loss beyond what is measured: the last point's rate per worker, at every count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddlbench.analysis.prediction import Measured, Prediction

if TYPE_CHECKING:
    from ddlbench.analysis.prediction._priors import Priors

LEAST_POINTS = 1
SOURCE = "the ideal line of every speed-up figure"


def predict(
    measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float], priors: Priors
) -> Prediction:
    import numpy as np

    return Prediction(np.array(workers, float) * measured.images_per_s[-1] / measured.workers[-1])
