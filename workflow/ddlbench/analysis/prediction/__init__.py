"""How fast training will be at worker counts that nobody ran. One file per model; shared helpers have a `_`.

`docs/prediction.md` says how good each model is; `bench/prediction.py` measures it. The default is `regression`. Look
there for the method, and in `_priors.py` for what it learns from published series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ddlbench.analysis.prediction._priors import Priors

    Floats = NDArray[np.float64]

DEFAULT = "regression"


class TooLittleError(ValueError):
    """The measured points do not suffice for this model; the message says what is missing."""


@dataclass(frozen=True)
class Measured:
    """One series: training alike in all but the number of workers. Points are sorted by workers, each count once.

    `images_per_s` counts all workers together; `batch_per_worker` is in images.
    """

    workers: tuple[int, ...]
    images_per_s: tuple[float, ...]
    batch_per_worker: tuple[float, ...]
    workers_per_node: int

    def __post_init__(self) -> None:
        """Raises ValueError if the points are no series."""
        if not self.workers or len({len(self.workers), len(self.images_per_s), len(self.batch_per_worker)}) != 1:
            raise ValueError("a series needs at least one point, and a rate and a batch for each number of workers")
        if list(self.workers) != sorted(set(self.workers)) or self.workers[0] < 1 or self.workers_per_node < 1:
            raise ValueError(f"workers must grow from 1 or more, not {self.workers}")
        if not all(0 < value < float("inf") for value in (*self.images_per_s, *self.batch_per_worker)):
            raise ValueError(f"rates and batches must be positive, not {self.images_per_s}, {self.batch_per_worker}")

    def first(self, points: int) -> Measured:
        """The series of its smallest worker counts."""
        return Measured(
            self.workers[:points], self.images_per_s[:points], self.batch_per_worker[:points], self.workers_per_node
        )


@dataclass(frozen=True)
class Prediction:
    """Images/s of all workers, one value per asked count; `low` and `high` hold the truth in 95 % of cases, or None."""

    images_per_s: Floats
    low: Floats | None = None
    high: Floats | None = None


class Model(Protocol):
    """One file of this room."""

    LEAST_POINTS: int  # measured points that it needs
    SOURCE: str  # where its form was published

    def predict(
        self, measured: Measured, workers: Sequence[int], batch_per_worker: Sequence[float], priors: Priors
    ) -> Prediction:
        """The rate at each of `workers`, which need not be larger than those measured.

        Raises TooLittleError if there are fewer than LEAST_POINTS points.
        """
