"""How fast training will be at worker counts that nobody ran.

`analysis/prediction_series.py` takes series from the tables, `last_rate.py` has the model,
`analysis/prediction_priors.py` what it has learnt from published series. `outlook/predictions.py`
asks it about a study; `bench/prediction.py` measures it beside nine published models
(`bench/rivals.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


class TooLittleError(ValueError):
    """The error that there are not enough measured points; the message names what is missing."""


@dataclass(frozen=True)
class Measured:
    """A measured series: training alike in all but the number of workers.

    Points are sorted by workers, each count once.

    `images_per_s` counts all workers together; `batch_per_worker` is in images.
    """

    workers: tuple[int, ...]
    images_per_s: tuple[float, ...]
    batch_per_worker: tuple[float, ...]
    workers_per_node: int

    def __post_init__(self) -> None:
        """Raise ValueError if the points are no series."""
        if (
            not self.workers
            or len({len(self.workers), len(self.images_per_s), len(self.batch_per_worker)}) != 1
        ):
            raise ValueError(
                "a series needs at least one point, and a rate and a batch for each number of"
                " workers"
            )
        if (
            list(self.workers) != sorted(set(self.workers))
            or self.workers[0] < 1
            or self.workers_per_node < 1
        ):
            raise ValueError(f"workers must be ascending, from 1 or more; not {self.workers}")
        if not all(
            0 < value < float("inf") for value in (*self.images_per_s, *self.batch_per_worker)
        ):
            raise ValueError(
                f"rates and batches must be positive, not {self.images_per_s},"
                f" {self.batch_per_worker}"
            )

    def first(self, points: int) -> Measured:
        """Return the series of its smallest worker counts."""
        return Measured(
            self.workers[:points],
            self.images_per_s[:points],
            self.batch_per_worker[:points],
            self.workers_per_node,
        )


@dataclass(frozen=True)
class Prediction:
    """The predicted images/s of all workers, one value per requested count. The interval from `low`
    to `high` holds the truth in 95 % of cases.
    """

    images_per_s: Floats
    low: Floats
    high: Floats


class Predictor(Protocol):
    """The contract of a file of this folder that the plan uses.

    Its import does not import numpy: the plan also runs where numpy is not installed.
    """

    def of_worker(
        self,
        rates: Mapping[int, float],
        workers: int,
        batch_per_worker: float,
        workers_per_node: int,
    ) -> tuple[float, float, float] | None:
        """Predict (low, likely, high rate of one worker) at another number of workers, from rates
        of one at others; None where nothing can be predicted.
        """
