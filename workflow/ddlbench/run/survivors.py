"""What an earlier Snakemake left behind when it was killed: its lock, SLURM jobs and supervisors
that still run.

SLURM jobs, and supervisors on this machine, do not end with the Snakemake that started them
(SIGKILL, a lost connection, a rebooted login node). Before the next one starts any job, `settle`
removes a lock that no living Snakemake holds, and waits for those that make what it would make.
`commands/start.py` calls it. Should all of this fail, two supervisors still never write one
record: `hold.py`.
"""

import atexit
import getpass
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ddlbench.core import living
from ddlbench.run import hold
from ddlbench.settings.config import ConfigError
from ddlbench.slurm import pending_reasons, squeue

MARKS = Path(".snakemake/ddlbench")  # one file for each Snakemake that is at work in this folder
# A living Snakemake touches its mark this often. Seen from another host it is dead after missing so
# many of them.
HEARTBEAT_S, MISSED_HEARTBEATS = 30.0, 10


@dataclass(frozen=True)
class SlurmJob:
    """A SLURM job of this folder, and why it waits. `comment` is the plugin's: rule and wildcards,
    so the run's id.
    """

    id: str
    state: str
    reason: str
    comment: str

    def __str__(self) -> str:
        advice = pending_reasons.advice(self.id, self.reason)
        return f"{self.id} {self.state.lower()}: {self.comment}" + (
            f": it {advice}" if advice else ""
        )


def settle(locks: Path, outputs: Iterable[tuple[str, str]], folders: Sequence[Path] = ()) -> None:
    """Wait until nothing of an earlier Snakemake stands in the way, and mark this one as being at
    work.

    `locks` is Snakemake's folder of locks; `outputs` are (rule, wildcards joined by _) that this
    plan may make on SLURM, none on other machines; `folders` those of jobs that it may make on this
    one. Raises ConfigError if SLURM does not answer.
    """
    others = remove_dead_lock(locks)
    me = living.myself()
    atexit.register(living.mark(MARKS / f"{me.host}-{me.pid}.json", HEARTBEAT_S))
    comments = {f"rule_{rule}_wildcards_{wildcards}" for rule, wildcards in outputs}
    if comments:
        wait(comments)
    if (
        not others
    ):  # else it is that Snakemake's jobs that are at work, and its lock that stands in the way
        wait_for_supervisors(folders)


def at_work(folder: Path = MARKS) -> list[living.Process]:
    """Return the Snakemakes that live, or may live. Marks of dead ones are removed."""
    working = []
    clock = folder.parent / f".now-{socket.gethostname()}-{os.getpid()}"
    for path in sorted(folder.glob("[!.]*.json")):  # not one that is being written
        process = living.read(path)
        # marks are dated by the file system's clock, which may be a server's: so is "now"
        clock.touch()
        with suppress(FileNotFoundError):
            recent = clock.stat().st_mtime - path.stat().st_mtime < HEARTBEAT_S * MISSED_HEARTBEATS
            alive = process is not None and hold.alive(process)
            if process is not None and (alive or (alive is None and recent)):
                working.append(process)
            else:
                path.unlink()
    clock.unlink(missing_ok=True)
    return working


def remove_dead_lock(locks: Path, folder: Path = MARKS) -> list[living.Process]:
    """Remove Snakemake's lock (the files in `locks`) if the Snakemake that left it is dead; else
    say who lives, and return them.
    """
    marked = any(folder.glob("[!.]*.json"))
    working = at_work(folder)
    for process in working:
        say(f"another Snakemake is at work in this folder: {process}")
    dead = list(locks.glob("*.lock"))
    if marked and dead and not working:
        for lock in (
            dead
        ):  # Snakemake's own cleanup_locks would remove the folder too, and then fail to lock
            lock.unlink(missing_ok=True)
        say("an earlier Snakemake was killed here; its lock is removed")
    return working


def slurm_jobs(comments: set[str], folder: Path) -> list[SlurmJob]:
    """Return our SLURM jobs of this folder with one of these comments.

    Raises ConfigError if SLURM does not answer.
    """
    asked = [
        f"--user={getpass.getuser()}",
        f"--format={squeue.marked('%i', '%T', '%r', '%Z', '%k')}",
    ]
    try:
        answer = squeue.squeue(asked, timeout_s=120)
        answer.check_returncode()
    except FileNotFoundError:
        raise ConfigError(
            "squeue is not installed here: start this on a login node of the cluster"
        ) from None
    except subprocess.CalledProcessError as error:
        raise ConfigError(
            f"SLURM does not answer, try again later: {error.stderr.strip()}"
        ) from None
    except subprocess.TimeoutExpired:
        raise ConfigError(
            "SLURM does not answer, try again later: squeue took more than two minutes"
        ) from None
    jobs = []
    for job, state, reason, where, its_comment in squeue.rows(answer.stdout, 5):
        comment = squeue.own_comment(its_comment)
        if comment in comments and Path(where).resolve() == folder.resolve():
            jobs.append(SlurmJob(job, state, reason, comment))
    return jobs


def wait(comments: set[str], folder: Path | None = None, every_s: float = 15.0) -> None:
    """Wait until none of our SLURM jobs of this folder makes what `comments` name."""
    shown: list[SlurmJob] = []
    while jobs := slurm_jobs(comments, folder or Path.cwd()):
        if not shown:
            say(
                f"waiting for {len(jobs)} SLURM jobs that an earlier Snakemake left; what they"
                " finish counts."
            )
            say(f"If you do not want to wait: scancel {' '.join(job.id for job in jobs)}")
        if jobs != shown:
            for job in jobs:
                say(f"  {job}")
            shown = jobs
        time.sleep(every_s)
    if shown:
        say("these jobs have ended; going on")


def wait_for_supervisors(folders: Sequence[Path], every_s: float = 1.0) -> None:
    """Wait until no visible process of this machine makes one of the jobs with these folders."""
    told: set[living.Process] = set()
    while at_work := [(folder, holder) for folder in folders if (holder := _local_holder(folder))]:
        for folder, holder in at_work:
            if holder not in told:
                say(
                    f"waiting for {folder.name}, which an earlier call began: {holder}; what it"
                    " finishes counts."
                )
                say(f"If you do not want to wait: kill {holder.pid}")
                told.add(holder)
        time.sleep(every_s)
    if told:
        say("these have ended; going on")


def _local_holder(folder: Path) -> living.Process | None:
    """Return the living process of this machine that holds a job's folder."""
    holder = living.read(folder / hold.HOLDER)
    return holder if holder is not None and living.lives(holder) else None


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
