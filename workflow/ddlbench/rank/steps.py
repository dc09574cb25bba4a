"""The parts of a step as moments, and rows of `steps.parquet` made of them once their times are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ddlbench.rank.clock import Clock, Moment


class Step:
    """One step of one rank while it is taken. `loss` is its share of the step's loss, a tensor."""

    def __init__(self, epoch: int, step: int, images: int, lr: float, data: Moment) -> None:
        self.epoch, self.step, self.images, self.lr = epoch, step, images, lr
        self.loss: Any = None
        self.moments = [data]  # then the end of each part's forward and backward pass, and of the step
        self.waits: Sequence[tuple[Moment, Moment]] | None = None

    def forward(self, moment: Moment, loss: Any) -> None:
        """The forward pass of a part of the batch is done."""
        self.moments.append(moment)
        self.loss = loss if self.loss is None else self.loss + loss

    def backward(self, moment: Moment) -> None:
        """The backward pass of that part is done."""
        self.moments.append(moment)

    def end(self, moment: Moment, waits: Sequence[tuple[Moment, Moment]] | None) -> None:
        """The step is done; `waits`: when it waited for gradients, None if the framework cannot tell."""
        self.moments.append(moment)
        self.waits = waits


def rows(taken: Sequence[Step], began: Moment, clock: Clock, rank: int) -> list[tuple[Any, ...]]:
    """A row (`record.STEP_COLUMNS`) a step; steps follow each other, the first of them from `began` on."""
    if not taken:
        return []
    import torch

    losses = torch.stack([step.loss for step in taken]).tolist()
    moments = [began]
    for step in taken:
        moments += step.moments
        for wait in step.waits or ():
            moments += wait
    seconds = iter(clock.seconds(moments))
    before = next(seconds)
    table = []
    for step, loss in zip(taken, losses, strict=True):
        data, *passes, end = (next(seconds) for _ in step.moments)
        waits = None if step.waits is None else [(next(seconds), next(seconds)) for _ in step.waits]
        starts = [data, *passes]
        forward = list(zip(starts[0::2], passes[0::2], strict=False))
        backward = list(zip(passes[0::2], passes[1::2], strict=True))
        phases = [_without(spans, waits or []) for spans in (forward, backward, [(passes[-1], end)])]
        waited = None if waits is None else sum(b - a for a, b in waits)
        times = (data - before, phases[0], phases[1], waited, phases[2], end)
        table.append((step.epoch, step.step, rank, step.images, step.lr, loss, *times))
        before = end
    return table


def _without(spans: list[tuple[float, float]], waits: list[tuple[float, float]]) -> float:
    """Seconds of the spans that are not waits."""
    overlap = sum(max(0.0, min(b, y) - max(a, x)) for a, b in spans for x, y in waits)
    return sum(b - a for a, b in spans) - overlap
