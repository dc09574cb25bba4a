"""Who is making a run right now: small files that name a process, so that others can find out whether it lives.

`ddlbench.run` holds a run's folder, so that two supervisors never write one record; `survivors.py` marks where a
Snakemake is at work. The processes may be on different nodes of a cluster and share nothing but files. Locks of the
operating system are not enough there: on many cluster file systems they hold on one node only.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

HOLDER = ".holder.json"
# States of a SLURM job of which a process may run.
LIVING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "CONFIGURING", "SIGNALING", "STAGE_OUT")


class HeldError(RuntimeError):
    """Another living process makes this run; one line."""


@dataclass(frozen=True)
class Process:
    """A process on a host. `born` tells it from a later one with its number; `job` is its SLURM job, "" without."""

    host: str
    pid: int
    born: str
    job: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" + (f", SLURM job {self.job}" if self.job else "")


def myself() -> Process:
    """This process."""
    pid = os.getpid()
    return Process(socket.gethostname(), pid, _born(pid), os.environ.get("SLURM_JOB_ID", ""))


def alive(process: Process) -> bool | None:
    """Whether that process still runs; None if that cannot be known from here."""
    if process.host == socket.gethostname() and _born(process.pid) == process.born:
        return True
    if process.job and process.job != os.environ.get("SLURM_JOB_ID"):
        return job_lives(process.job)
    # Of our own SLURM job: it was requeued, which SLURM does when nothing of it runs any more.
    return False if process.job or process.host == socket.gethostname() else None


def job_lives(job: str) -> bool | None:
    """Whether SLURM still has the job running or ending; None if SLURM does not answer."""
    try:
        answer = squeue([f"--jobs={job}", "--format=%T"], timeout_s=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode:
        return False if "Invalid job id" in answer.stderr else None
    return answer.stdout.strip() in LIVING


def squeue(arguments: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Ask SLURM for jobs, those of hidden partitions too, whatever the user has set for `squeue` (SQUEUE_STATES, ...).

    Raises OSError if there is no squeue, TimeoutExpired if it does not answer in time.
    """
    return subprocess.run(
        ["squeue", "--noheader", "--all", *arguments],
        env={name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


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


def read(path: Path) -> Process | None:
    """The process that a file names; None if the file has gone or cannot be understood."""
    try:
        return Process(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


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


def _born(pid: int) -> str:
    """When a living process began, in ticks since that boot; "" if there is none, or only a zombie."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        state, *fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    except OSError:
        return ""
    return "" if state == "Z" else f"{boot} {fields[18]}"
