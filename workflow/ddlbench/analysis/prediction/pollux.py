"""Pollux's step time: (T_grad^g + T_sync^g)^(1/g), compute and communication that overlap in part.

T_grad = b per image of a worker's batch; T_sync = 0 for one worker, l + r (G - 2) within a node, and with constants of
its own beyond a node. g reaches from 1 (no overlap) to 10 (all of it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddlbench.analysis.prediction import Measured, Prediction, _curve

if TYPE_CHECKING:
    from ddlbench.analysis.prediction import Floats
    from ddlbench.analysis.prediction._priors import Priors

LEAST_POINTS = 3
SOURCE = "Qiao et al. 2021, OSDI, Pollux, equations 9 to 11; without its constant part of T_grad"


def predict(
    measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float], priors: Priors
) -> Prediction:
    _curve.need(measured, LEAST_POINTS, "pollux")
    return fit(measured, workers, stragglers=False)


def fit(measured: Measured, workers: Sequence[int], *, stragglers: bool) -> Prediction:
    """With `stragglers`, compute grows by the expected maximum of G normal step times: 1 + s sqrt(2 ln G)."""
    import numpy as np

    node = measured.workers_per_node

    def curve(count: Floats, parameters: Floats) -> Floats:
        near, near_more, far, far_more, overlap, spread = [*parameters, 0.0][:6]
        grow = np.maximum(count - 2, 0)
        sync = np.where(count > node, far + far_more * grow, near + near_more * grow)
        sync = np.where(count > 1, sync, 0.0)
        compute = 1 + spread * np.sqrt(2 * np.log(count))
        power = 1 + 9 * overlap
        return np.asarray(count / (compute**power + sync**power) ** (1 / power))

    starts: list[tuple[float, ...]] = [(0.05,), (1e-4,), (0.1,), (1e-4,), (0.1, 0.5)]
    return _curve.fit(curve, [*starts, (0.01,)] if stragglers else starts, (0.0, 1.0), measured, workers)
