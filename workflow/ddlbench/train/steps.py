"""A step's parts as moments, and the rows of `steps.parquet` made of them once their times are
known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from ddlbench.core.step_rows import StepRow, packed, step_type
from ddlbench.train.clock import Clock
from ddlbench.train.frameworks import Moment

if TYPE_CHECKING:
    from ddlbench.core.step_rows import Rows

Span = tuple[float, float]  # begin and end [s]


class Step:
    """One step of one rank while it is taken. `loss` is its share of the step's loss, a tensor that
    nobody waits for.

    `moments` begins when the batch is there. Then comes the end of each part's forward pass and of
    its backward pass, in turns, and last the end of the step.
    """

    def __init__(self, epoch: int, step: int, images: int, lr: float, batch_there: Moment) -> None:
        self.epoch, self.step, self.images, self.lr = epoch, step, images, lr
        self.loss = torch.zeros(())
        self.moments = [batch_there]
        self.waits: Sequence[tuple[Moment, Moment]] | None = None

    def forward(self, moment: Moment, loss: torch.Tensor) -> None:
        """Record that the forward pass of a part of the batch is done."""
        self.loss = loss if len(self.moments) == 1 else self.loss + loss
        self.moments.append(moment)

    def backward(self, moment: Moment) -> None:
        """Record that the backward pass of that part is done."""
        self.moments.append(moment)

    def end(self, moment: Moment, waits: Sequence[tuple[Moment, Moment]] | None) -> None:
        """Record the end of the step.

        `waits`: when it waited for gradients; None if the framework cannot measure it.
        """
        self.moments.append(moment)
        self.waits = waits


def rows(steps: Sequence[Step], began: Moment, clock: Clock, rank: int) -> list[StepRow]:
    """Return one row per step. Steps follow each other; the first one's wait for data begins at
    `began`.
    """
    if not steps:
        return []
    losses: list[float] = torch.stack([step.loss for step in steps]).tolist()
    moments = [began]
    for step in steps:
        moments += step.moments
        for wait in step.waits or ():
            moments += wait
    seconds = iter(clock.seconds(moments))
    before = next(seconds)
    table = []
    for step, loss in zip(steps, losses, strict=True):
        data, *passes, end = (next(seconds) for _ in step.moments)
        waits = [(next(seconds), next(seconds)) for _ in step.waits or ()]
        starts = [data, *passes]
        row = StepRow(
            epoch=step.epoch,
            step=step.step,
            rank=rank,
            images=step.images,
            lr=step.lr,
            loss=loss,
            data_wait_s=data - before,
            forward_s=_without(list(zip(starts[0::2], passes[0::2], strict=False)), waits),
            backward_s=_without(list(zip(passes[0::2], passes[1::2], strict=True)), waits),
            communication_s=None if step.waits is None else sum(b - a for a, b in waits),
            optimizer_s=_without([(passes[-1], end)], waits),
            end_s=end,
        )
        table.append(row)
        before = end
    return table


def gathered(own: Sequence[StepRow], gather: Callable[[torch.Tensor], torch.Tensor]) -> Rows:
    """Return the rows of all ranks, one rank after the other, to the last bit.

    Each gives as many; all call it at once.

    So a run of any number of ranks writes one file. `gather` gives the tensors of all ranks,
    [ranks, bytes].
    """
    return (
        gather(torch.from_numpy(packed(own).view(np.uint8))).numpy().reshape(-1).view(step_type())
    )


def _without(spans: list[Span], waits: list[Span]) -> float:
    """Return the seconds of the spans that are not waits."""
    overlap = sum(max(0.0, min(b, y) - max(a, x)) for a, b in spans for x, y in waits)
    return sum(b - a for a, b in spans) - overlap
