"""Who is making a run right now: a run's folder is held, so that two supervisors never write one record.

The holder is named in a file (`core/living.py`). SLURM is asked about a holder on another node.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from ddlbench.core.living import Process, lives, myself, read
from ddlbench.slurm import queue

HOLDER = ".holder.json"


class HeldError(RuntimeError):
    """Another living process makes this run; one line."""


def alive(process: Process) -> bool | None:
    """Whether that process still runs; None if that cannot be known from here."""
    life = lives(process)
    if life or not process.job:
        return life
    # Of our own SLURM job: it was requeued, which SLURM does when nothing of it runs any more.
    return process.job != os.environ.get("SLURM_JOB_ID") and queue.lives(process.job)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a run's folder. Takes it over from a dead process.

    Raises HeldError while another living process holds it, or if nothing can be written there.
    """
    holder, me = folder / HOLDER, myself()
    mine = folder / f"{HOLDER}.{me.host}.{me.pid}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mine.write_text(json.dumps(asdict(me)), encoding="utf-8")
    except OSError as error:
        with suppress(OSError):
            mine.unlink()
        raise HeldError(f"{folder}: cannot be written: {error.strerror}") from None
    try:
        while True:
            try:
                os.link(mine, holder)  # the file is whole from its first moment, and only one of us succeeds
                break
            except FileExistsError:
                _take_over(holder, mine.with_suffix(".stale"))
    finally:
        mine.unlink(missing_ok=True)
    try:
        yield
    finally:
        holder.unlink(missing_ok=True)


def _take_over(holder: Path, aside: Path) -> None:
    """Remove a dead process's file. Raises HeldError if it lives or nobody knows."""
    other = read(holder)
    if other is not None:
        life = alive(other)
        if life:
            raise HeldError(f"{holder.parent} is being made by {other}; wait for that process, or end it first")
        if life is None:
            raise HeldError(
                f"{holder.parent} was being made by {other}, and from {socket.gethostname()} it cannot be seen whether "
                f"that process still runs; if it does not, remove {holder}"
            )
    # Only the process that moves the file away removes it. If it was a new holder's by then, it is put back.
    with suppress(FileNotFoundError):
        holder.rename(aside)
        if read(aside) != other:
            with suppress(FileExistsError):
                os.link(aside, holder)
        aside.unlink()
