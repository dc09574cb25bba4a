"""Who is making a run right now: a run's folder is held, so that two supervisors never write one
record.

The holder is named in a file (`core/living.py`). SLURM is asked about a holder on another node. A
job comes late if another one makes its run, or has made it since this one was asked for: it was
submitted twice, by Snakemake or by hand, another clone has the same `results/`, or SLURM queued it
again after it had made the run. Snakemake removes a job's outputs and its log before it executes
it, and outputs after it failed: they may be another job's by then. `patches/snakemake_outputs.py`
keeps them; the supervisor, which holds the run's folder, removes what is made again.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from ddlbench.core.files import link_new, sha256
from ddlbench.core.living import Process, lives, myself, read
from ddlbench.core.mllog import Event, ended_well, read_log
from ddlbench.core.record import MLLOG, STEPS
from ddlbench.core.seal import sealed
from ddlbench.core.spec import RunSpec
from ddlbench.plan import stale
from ddlbench.slurm import squeue, step

HOLDER = ".holder.json"
WRITTEN_S = 5.0  # in which a holder has written its name
# when the Snakemake began whose job this is [s since 1970]; its jobs inherit the variable
ASKED = "DDLBENCH_ASKED_S"


class HeldError(RuntimeError):
    """The error that another living process makes this run; one line."""


def alive(process: Process) -> bool | None:
    """Tell whether that process still runs; None if that cannot be known from here."""
    life = lives(process)
    if life or not process.job:
        return life
    if process.job != step.job():
        return squeue.lives(process.job)
    # Of our own SLURM job: SLURM requeues a job when nothing of it runs any more. Of one that was
    # not requeued, another node's process may live.
    return False if step.requeued_job() else None


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a run's folder, and take it over from a dead process.

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
                link_new(mine, holder)  # only one of us succeeds
                break
            except FileExistsError:
                if not _is_being_written(holder):
                    _take_over(holder, mine.with_suffix(".stale"))
    finally:
        mine.unlink(missing_ok=True)
    try:
        yield
    finally:
        holder.unlink(missing_ok=True)


def _is_being_written(holder: Path) -> bool:
    """Tell whether a file without a process in it is so young that it may get one: where there are
    no hard links it is empty at first. Wait a little then.
    """
    try:
        young = read(holder) is None and time.time() - holder.stat().st_mtime < WRITTEN_S
    except OSError:
        return False
    if young:
        time.sleep(WRITTEN_S / 10)
    return young


def _take_over(holder: Path, moved: Path) -> None:
    """Remove a dead process's file. Raises HeldError if it lives or nobody knows."""
    other = read(holder)
    if other is not None:
        life = alive(other)
        if life:
            raise HeldError(
                f"{holder.parent} is being made by {other}; wait for that process, or end it first"
            )
        if life is None:
            raise HeldError(
                f"{holder.parent} was being made by {other}, and from {socket.gethostname()} it"
                f" cannot be seen whether that process still runs; if it does not, remove {holder}"
            )
    # Only the process that moves the file away removes it. If it was a new holder's by then, it is
    # put back.
    with suppress(FileNotFoundError):
        holder.rename(moved)
        if read(moved) != other:
            with suppress(FileExistsError):
                link_new(moved, holder)
        moved.unlink()


def finished(folder: Path, spec: RunSpec) -> bool:
    """Return whether a job leaves a run's record unchanged: the record is sound, and was made after
    this job was requested, or was already finished before SLURM requeued this very job. A job that
    no Snakemake requested leaves every sound record unchanged: its script was submitted once more,
    by hand.
    """
    last = sound_events(folder, spec)
    if last is None or ASKED not in os.environ:
        return last is not None
    job = step.requeued_job()
    by_this_job = job is not None and last["ddlbench_facts"].value.get("slurm_job_id") == job
    return by_this_job or last["run_stop"].time_s > asked_s()


def sound_events(folder: Path, spec: RunSpec) -> dict[str, Event] | None:
    """Return the last event of each key of a sound record. None if the record is incomplete,
    differs from its seal, or has other settings.
    """
    log = folder / MLLOG
    try:
        files = sealed(log)
        if files is None or STEPS not in files or stale.is_of_other_settings(log, spec):
            return None
        last = {event.key: event for event in read_log(log)}
        good = ended_well(last) and "ddlbench_facts" in last
        return (
            last
            if good and all(sha256(folder / name) == digest for name, digest in files.items())
            else None
        )
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ):  # none, or one that tables refuse
        return None


def asked_s() -> float:
    """Return when this job was requested [s since 1970]; infinity without a Snakemake."""
    try:
        return float(os.environ[ASKED])
    except (KeyError, ValueError):
        return float("inf")


def restore_log(log: Path) -> None:
    """Restore the log of the earlier job of this run, which this job came too late to repeat; the
    lines of this process go to another file.
    """
    with suppress(OSError):
        if displaced_log(log).exists() and os.path.samestat(os.fstat(1), log.stat()):
            log.rename(log.with_name(f"refused-{socket.gethostname()}-{os.getpid()}.log"))
            displaced_log(log).rename(log)


def remove_displaced_log(log: Path) -> None:
    """Remove the log of an earlier job, because this process makes the run now.

    Raises nothing.
    """
    with suppress(OSError):
        displaced_log(log).unlink()


def print_refusals(logs: Sequence[Path]) -> None:
    """Print the messages of jobs that were refused, after the job with these logs has failed."""
    for refusal in refusals(logs):
        print(refusal, file=sys.stderr, flush=True)


def refusals(logs: Sequence[Path]) -> list[str]:
    """Return the messages of jobs that were refused, each after the name of its file."""
    files = sorted(file for log in logs for file in log.parent.glob("refused-*.log"))
    new = [file for file in files if file.stat().st_mtime > asked_s()]
    return [f"{file}: {file.read_text(errors='replace').strip()}" for file in new]


def displaced_log(log: Path) -> Path:
    """Return the path of an earlier job's log while a later job of the same run writes one of its
    name.
    """
    return log.with_name(f".{log.name}")
