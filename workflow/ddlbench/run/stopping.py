"""End a program after so many steps or minutes, as its file says: a measurement needs no whole
training.
"""

import contextlib
import io
import os
import signal
import threading
import time
from collections.abc import Callable

from ddlbench.core.program import Program

EVERY_S = 1.0  # between looks
SHARE = 0.05  # of the time at most is spent with looking


class Stopping:
    """A watch on a program while the block runs.

    `steps` says how many were read so far; `enough`: it was ended.
    """

    def __init__(self, program: Program, steps: Callable[[], int]) -> None:
        self.program, self.steps = program, steps
        self.enough = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Stopping":
        if self.program.stop_after is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self.program.stop_after is not None:
            self._thread.join()

    def _watch(self) -> None:
        began, wait_s = time.monotonic(), EVERY_S
        while not self._ended.wait(wait_s):
            looked = time.monotonic()
            if self._reached(looked - began):
                self.enough = True
                os.kill(os.getpid(), signal.SIGINT)
                return
            wait_s = max(EVERY_S, (time.monotonic() - looked) / SHARE)

    def _reached(self, seconds: float) -> bool:
        if self.program.most_minutes is not None:
            return seconds >= 60 * self.program.most_minutes
        with contextlib.redirect_stdout(
            io.StringIO()
        ):  # what a reading says is said once, at the end
            return self.steps() >= (self.program.most_steps or 0)
