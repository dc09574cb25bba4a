"""A run that is interrupted on purpose: when it writes a checkpoint, and how its ranks die.

A study asks for it with `interrupt: {steps: N}`, to measure what an interruption costs. Every rank
kills itself with SIGKILL, so no handler runs, nothing is flushed, and ranks on other nodes die as
those here do. `run/finish.py` sees that it happened, starts the run again, and keeps what was
measured.
"""

import os
import signal
import time
from pathlib import Path

from ddlbench.core.files import write_json

NOTE = "interruption.json"  # rank 0 leaves it where the record is made
# All ranks have met before they die. A rank that died at once could still owe another one its part
# of that meeting.
LEAVE_S = 1.0


def checkpoint_step(interrupt_steps: int | None, steps: int) -> int | None:
    """Return the number of steps after which the run writes the checkpoint that it resumes from:
    half of those before its death.

    `steps` are those of an epoch. None for a run that is left alone.
    """
    if interrupt_steps is None:
        return None
    half = interrupt_steps // 2
    # Before the last step of an epoch nothing is written, and after it only when the epoch was
    # validated.
    return half + 1 if half % steps == steps - 1 else half


def die(folder: Path, rank: int, step: int, checkpoint_s: float | None) -> None:
    """Kill this rank after `step` steps of the run.

    `checkpoint_s`: what its last checkpoint took.
    """
    time.sleep(LEAVE_S)
    if rank == 0:
        write_json(
            folder / NOTE, {"step": step, "checkpoint_s": checkpoint_s, "time_s": time.time()}
        )
    os.kill(os.getpid(), signal.SIGKILL)
