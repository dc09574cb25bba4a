"""What a rank watches while it trains: signals that ask it to stop, the next checkpoint, losses
that are no numbers.

Ranks must agree before they act, because all of them write a checkpoint at the same step. Agreeing
is a collective, so they do it about every AGREE_S seconds only. `run/watch.py` is the other half:
it sees ranks that can say nothing any more.
"""

import signal
import time
from collections.abc import Callable
from types import FrameType

import torch

from ddlbench.core.notes import STOP_SIGNALS, LossError

AGREE_S = 5.0


class Stopped(Exception):
    """The exception for a signal that requested the end of the run. The checkpoint is written."""


class Guard:
    """The agreement of all ranks about what comes next.

    `gather` gives a tensor of each rank, [ranks, *shape].

    A checkpoint is due every `minutes` of training; never if that is None. `first` is the process's
    first step, counted over the whole run as everywhere here.
    """

    def __init__(
        self, gather: Callable[[torch.Tensor], torch.Tensor], minutes: float | None, first: int = 0
    ) -> None:
        self.gather = gather
        self.every_s = minutes * 60 if minutes else float("inf")
        self.last_s = time.monotonic()
        self.signal: int | None = None
        self.stop = False  # all ranks have agreed to
        self.first = self.next = first  # ranks agree after step `next`, the same on all ranks
        self.agreed: tuple[float, int] | None = (
            None  # when ranks agreed last [s], and how many steps were done
        )
        for number in STOP_SIGNALS:
            signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.signal = number

    def due(self, step: int) -> bool:
        """Tell whether ranks agree after this step. The answer is the same on all ranks."""
        return step >= self.next

    def agree(self, rank: int, losses: list[torch.Tensor], first_step: int) -> bool:
        """Decide whether all ranks write a checkpoint now.

        `losses` are tensors, of the steps from `first_step` on.

        Raises LossError if one of them is not a finite number.
        """
        values = torch.stack(losses) if losses else torch.zeros(1)
        finite = bool(torch.isfinite(values).all())
        due = rank == 0 and time.monotonic() - self.last_s >= self.every_s
        now_s, done = (
            time.monotonic(),
            first_step + len(losses),
        )  # their values are there: also on a GPU they are done
        before_s, done_before = self.agreed or (now_s, done)
        self.agreed = now_s, done
        mine = [self.signal is not None, due, not finite, now_s - before_s]
        every = self.gather(torch.tensor(mine, dtype=torch.float64))
        self.stop, due_anywhere, broken = (every[:, :3] > 0).any(0).tolist()
        took_s = float(every[:, 3].mean())
        if broken:
            if finite:
                raise RuntimeError("another rank has lost its way: its loss is not a finite number")
            wrong = first_step + int((~torch.isfinite(values)).nonzero()[0])
            raise LossError(
                f"the loss of step {wrong} is {values[wrong - first_step].item()}", wrong
            )
        if losses:
            # Twice as far as before, because the length of a step is not known at first; then as it
            # turns out. A validation in between counts as steps: ranks agree once too early.
            paced = AGREE_S * (done - done_before) / took_s if took_s > 0 else float("inf")
            self.next = done - 1 + max(1, round(min(paced, done - self.first)))
        if due_anywhere:
            self.last_s = time.monotonic()
        return self.stop or due_anywhere
