"""What an earlier Snakemake left behind when it was killed: its lock, and SLURM jobs that still run.

SLURM jobs do not end with the Snakemake that submitted them (SIGKILL, a lost connection, a rebooted login node). Before
the next one plans anything, `Guard` waits for those that make what it would make, and removes a lock that no living
Snakemake holds. The Snakefile has the `train` rule ask it. Should all of this fail, two supervisors still never write
one record: `hold.py`.
"""

from __future__ import annotations

import atexit
import getpass
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ddlbench.run import hold
from ddlbench.settings.config import ConfigError

MARKS = Path(".snakemake/ddlbench")
# A living Snakemake touches its mark this often. Seen from another host it is dead after so many times that.
BEAT_S, MISSED_BEATS = 30.0, 10
T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """A SLURM job of this folder. `comment` is the plugin's: rule and wildcards, so the run's id is in it."""

    id: str
    state: str
    comment: str


@dataclass
class Guard:
    """`guard(value)` is `value`, once nothing of an earlier Snakemake stands in the way; checks at its first call.

    It acts only in a Snakemake that is going to run jobs: not in a dry run, a report, or within a job.
    """

    workflow: Any
    outputs: Iterable[tuple[str, str]]  # (rule, wildcards joined by _) that this plan may make
    slurm: bool
    passed: bool = field(default=False, init=False)

    def __call__(self, value: T) -> T:
        w = self.workflow
        if not self.passed and w.is_main_process and w.executor_plugin is not None and not w.dryrun:
            self.passed = True
            remove_dead_lock(Path(w.persistence.path, "locks"))
            mark()
            if self.slurm:
                wait({f"rule_{rule}_wildcards_{wildcards}" for rule, wildcards in self.outputs})
        return value


def mark(folder: Path = MARKS) -> None:
    """Say that a Snakemake is at work here, for as long as this process lives."""
    me = hold.myself()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{me.host}-{me.pid}.json"
    path.write_text(json.dumps(asdict(me)), encoding="utf-8")
    atexit.register(path.unlink, missing_ok=True)
    threading.Thread(target=_beat, args=(path,), daemon=True).start()


def _beat(path: Path) -> None:
    while True:
        time.sleep(BEAT_S)
        with suppress(OSError):
            path.touch()


def at_work(folder: Path = MARKS) -> list[hold.Process]:
    """The Snakemakes that live, or may live; marks of dead ones are removed."""
    living = []
    now = folder.parent / f".now-{socket.gethostname()}"
    for path in sorted(folder.glob("*.json")):
        process = hold.read(path)
        now.touch()  # by the clock that the marks are dated by, which may be a file server's
        with suppress(FileNotFoundError):
            recent = now.stat().st_mtime - path.stat().st_mtime < BEAT_S * MISSED_BEATS
            if process is not None and (hold.alive(process) or (hold.alive(process) is None and recent)):
                living.append(process)
            else:
                path.unlink()
    now.unlink(missing_ok=True)
    return living


def remove_dead_lock(locks: Path, folder: Path = MARKS) -> None:
    """Remove Snakemake's lock (the files in `locks`) if the one that left it is dead; else say who lives."""
    marked = any(folder.glob("*.json"))
    living = at_work(folder)
    for process in living:
        say(f"another Snakemake is at work in this folder: {process}")
    dead = list(locks.glob("*.lock"))
    if marked and dead and not living:
        for lock in dead:  # Snakemake's own cleanup_locks would remove the folder too, and then fail to lock
            lock.unlink(missing_ok=True)
        say("an earlier Snakemake was killed here; its lock is removed")


def jobs(comments: set[str], folder: Path) -> list[Job]:
    """Our SLURM jobs of this folder with one of these comments. Raises ConfigError if SLURM does not answer."""
    asked = ["squeue", "--noheader", f"--user={getpass.getuser()}", "--format=%i|%T|%Z|%k"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True).stdout
    except FileNotFoundError:
        raise ConfigError("squeue is not installed here: start this on a login node of the cluster") from None
    except subprocess.CalledProcessError as error:
        raise ConfigError(f"SLURM does not answer, try again later: {error.stderr.strip()}") from None
    except subprocess.TimeoutExpired:
        raise ConfigError("SLURM does not answer, try again later: squeue took more than two minutes") from None
    found = []
    for line in said.splitlines():
        job, state, where, comment = line.split("|", 3)
        if comment in comments and Path(where).resolve() == folder.resolve():
            found.append(Job(job, state, comment))
    return found


def wait(comments: set[str], folder: Path | None = None, every_s: float = 15.0) -> None:
    """Until none of our SLURM jobs of this folder makes what `comments` name."""
    told: list[Job] = []
    while left := jobs(comments, folder or Path.cwd()):
        if not told:
            say(f"{len(left)} SLURM jobs of an earlier Snakemake still make runs of this study; waiting for them.")
            say(f"What they finish counts. Not to wait: scancel {' '.join(job.id for job in left)}")
        if left != told:
            for job in left:
                say(f"  {job.id} {job.state.lower()}: {job.comment}")
            told = left
        time.sleep(every_s)
    if told:
        say("they have ended; going on")


def say(text: str) -> None:
    """To people, where Snakemake's own messages go."""
    print(text, file=sys.stderr, flush=True)
