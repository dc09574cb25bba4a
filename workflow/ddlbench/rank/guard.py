"""What a rank watches while it trains: signals that ask it to stop, the next checkpoint, losses that are no numbers.

Ranks must agree before they act, because all of them write a checkpoint at the same step. Agreeing is a collective, so
they do it about every AGREE_S seconds only. `run/watch.py` is the other half: it sees ranks that can say nothing any
more.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType

import torch

from ddlbench.notes import LossError

AGREE_S = 5.0


class Stopped(Exception):
    """A signal asked the run to end; its checkpoint is written."""


class Guard:
    """Lets all ranks agree about what comes next. `average` is the framework's mean over ranks.

    A checkpoint is due every `minutes` of training; never if that is None.
    """

    def __init__(
        self, average: Callable[[torch.Tensor], torch.Tensor], device: torch.device, minutes: float | None
    ) -> None:
        self.average, self.device = average, device
        self.every_s = minutes * 60 if minutes else float("inf")
        self.last_s = time.monotonic()
        self.signal: int | None = None
        self.stop = False  # all ranks have agreed to
        self.interval = 1  # steps between agreements, the same on all ranks
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.signal = number

    def due(self, step: int) -> bool:
        """Whether ranks agree after this step, counted from 0 in this process. The answer is the same on all ranks."""
        # After 1, 2, 4, ... steps too, because the length of a step is not known at first.
        return (step + 1) % self.interval == 0 or step & (step + 1) == 0

    def agree(self, rank: int, losses: list[torch.Tensor], first_step: int) -> bool:
        """Whether all ranks write a checkpoint now. `losses` are tensors, of the steps from `first_step` on.

        Raises LossError if one of them is not a finite number.
        """
        values = torch.stack(losses) if losses else torch.zeros(1, device=self.device)
        finite = bool(torch.isfinite(values).all())
        due = rank == 0 and time.monotonic() - self.last_s >= self.every_s
        mine = [float(self.signal is not None), float(due), float(not finite)]
        stop, due_anywhere, broken = self.average(torch.tensor(mine, device=self.device)).tolist()
        if broken:
            if finite:
                raise RuntimeError("another rank has lost its way: its loss is not a finite number")
            wrong = first_step + int((~torch.isfinite(values)).nonzero()[0])
            raise LossError(f"the loss of step {wrong} is {values[wrong - first_step].item()}")
        self.stop = stop > 0
        if due_anywhere:
            self.last_s = time.monotonic()
        return self.stop or due_anywhere > 0

    def pace(self, step_s: float) -> None:
        """Agree about every AGREE_S seconds from now on. `step_s`: how long a step takes, the same on all ranks."""
        self.interval = max(1, round(AGREE_S / max(step_s, 1e-6)))
