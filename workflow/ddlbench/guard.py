"""What a rank watches while it trains: signals that ask it to stop, the next checkpoint, losses that are no numbers.

Ranks must agree before they act, because all of them write a checkpoint at the same step. They agree seldom (about
every AGREE_S seconds), with one number each. `run.py` is the other half: it sees ranks that can say nothing any more.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

AGREE_S = 5.0
BEAT_S = 5.0
# sysexits.h: EX_TEMPFAIL, "try again". A run that stopped on request and left a checkpoint ends with it.
STOPPED = 75
STOPPED_NOTE = "stopped"  # rank 0 leaves it beside the checkpoint


class LossError(ArithmeticError):
    """The loss of a step is NaN or infinite."""


class Stopped(Exception):
    """A signal asked the run to end; its checkpoint is written."""


class Guard:
    """Agreement of all ranks about what comes next; `average` is the framework's mean over ranks.

    A checkpoint is due every `minutes` of training, if that is a number.
    """

    def __init__(self, average: Callable[[Any], Any], device: Any, minutes: float | None) -> None:
        self.average, self.device = average, device
        self.every_s = minutes * 60 if minutes else float("inf")
        self.last_s = time.monotonic()
        self.signal: int | None = None
        self.stop = False  # agreed: all ranks will
        self.interval = 1  # steps between agreements, the same on all ranks
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.signal = number

    def due(self, step: int) -> bool:
        """Whether ranks agree after `step` (from 0 in this process); the same on all of them."""
        # Until a step's length is known, after 1, 2, 4, ... steps.
        return (step + 1) % self.interval == 0 or step & (step + 1) == 0

    def agree(self, rank: int, losses: list[Any], first_step: int) -> bool:
        """Whether all ranks write a checkpoint now. `losses`: of the steps from `first_step` on, tensors.

        Raises LossError if one is no finite number.
        """
        import torch

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
        """Agree about every AGREE_S seconds from now on; `step_s`, the length of a step [s], is one for all ranks."""
        self.interval = max(1, round(AGREE_S / max(step_s, 1e-6)))


def introduce(folder: Path, rank: int, local_rank: int, used: dict[str, Any] | None = None) -> None:
    """Tell `run.py` which process is this rank; in the end, also what it `used` (`measure.py`)."""
    started = psutil.Process().create_time()  # tells this process from a later one with its number
    who = {"host": socket.gethostname(), "pid": os.getpid(), "started": started, "local_rank": local_rank}
    write(folder / f"rank-{rank}.json", who | (used or {}))


def keep_beating(folder: Path, rank: int) -> None:
    """A thread that writes a new number every few seconds, which `watch.py` reads; and that ends this process when its
    launcher is gone: nobody would keep its record.
    """
    parent = os.getppid()

    def beat() -> None:
        count = 0
        while os.getppid() == parent:
            count += 1
            with suppress(OSError):  # the disk is full: what matters will say so
                (folder / f"beat-{rank}").write_text(str(count), encoding="utf-8")
            time.sleep(BEAT_S)
        os._exit(1)

    threading.Thread(target=beat, daemon=True).start()


def report(folder: Path, rank: int, error: BaseException) -> None:
    """Leave why this rank ended, for `run.py`."""
    message = "".join(traceback.format_exception_only(error)).strip()
    write(folder / f"failure-{rank}.json", {"cause": cause(error), "message": message, "time": time.time()})


def cause(error: BaseException) -> str:
    """What happened, in one of a few words that tables can count."""
    text = str(error).lower()
    if isinstance(error, LossError):
        return "loss is not finite"
    if type(error).__name__ == "WorldError":
        return "wrong number of ranks"
    if isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text:
        return "out of memory"
    if (isinstance(error, OSError) and error.errno == 28) or "no space left on device" in text:
        return "disk full"
    if "address already in use" in text or "eaddrinuse" in text:
        return "port in use"
    if any(words in text for words in LOST):
        return "lost another rank"
    return "exception"


# What Gloo, NCCL and Horovod say when the other side of a connection is gone.
LOST = ("connection closed by peer", "connection reset by peer", "broken pipe", "has been shut down", "socket closed")
LOST += (
    "another rank has lost its way",
    "connection refused",
    "remote process exited",
    "nccl communicator was aborted",
    "timed out waiting",
    "is killed by signal: terminated",  # a loader's process, by the launcher that ends all ranks when one is gone
)


def write(path: Path, data: Any) -> None:
    """JSON, aside and then renamed."""
    aside = path.with_name(f".{path.name}")
    aside.write_text(json.dumps(data), encoding="utf-8")
    aside.replace(path)
