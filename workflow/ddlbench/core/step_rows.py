"""Rows of `steps.parquet`: what a step is made of, and one step on one rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

if TYPE_CHECKING:
    import numpy as np

    Rows = np.ndarray[Any, np.dtype[np.void]]


class StepPart(NamedTuple):
    """A part of a step: how figures name it, and what it is."""

    word: str
    means: str


# The parts of a step, in the order in which it makes them: columns of `steps.parquet` [s]. What
# they add up to is the step; those in COMPUTE are the rank's own work.
STEP_PARTS = {
    "data_wait_s": StepPart("data wait", "Waiting for images"),
    "forward_s": StepPart("forward", "Forward pass"),
    "backward_s": StepPart("backward", "Backward pass"),
    "communication_s": StepPart(
        "communication",
        "Waiting for gradients, and for parameters that other ranks update (ZeRO 1, 2); null where"
        " the framework cannot measure it, then it is in the others",
    ),
    "optimizer_s": StepPart("optimizer", "The optimizer"),
}
COMPUTE = ["forward_s", "backward_s", "optimizer_s"]


class StepRow(NamedTuple):
    """One row of `steps.parquet`: one step on one rank. Its fields are the columns;
    `train/steps.py` fills them.
    """

    epoch: int  # from 0
    step: int  # from 0, over the whole run
    rank: int
    images: int  # of this rank; 0 if none were left for it
    lr: float
    loss: float  # summed over ranks, this is the mean over the step's images
    data_wait_s: float  # of an epoch's first step: since the loader was asked for the epoch
    forward_s: float
    backward_s: float
    communication_s: float | None  # the step waited for gradients; None where that is not measured
    optimizer_s: float
    end_s: float  # since training began on this rank, without interruptions

    @property
    def took_s(self) -> float:
        """Return the time of the complete step, from the end of the step before or the epoch's
        beginning.
        """
        return sum(getattr(self, part) or 0.0 for part in STEP_PARTS)


# Times and losses are measured to fewer digits than float32 has.
STEP_COLUMNS = {
    name: "int32" if kind is int else "float64" if name == "lr" else "float32"
    for name, kind in get_type_hints(StepRow).items()
}
NULLABLE = {name for name, kind in get_type_hints(StepRow).items() if kind == float | None}


def step_type() -> np.dtype[np.void]:
    """Return the layout of a StepRow in bytes."""
    import numpy as np

    return np.dtype(
        [(name, np.dtype(kind).newbyteorder("<")) for name, kind in STEP_COLUMNS.items()]
    )


def packed(rows: Sequence[StepRow]) -> Rows:
    """Return rows as an array; NaN for None."""
    import numpy as np

    nan = float("nan")
    return np.array(
        [tuple(nan if value is None else value for value in row) for row in rows], dtype=step_type()
    )
