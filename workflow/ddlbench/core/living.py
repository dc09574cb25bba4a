"""What it means that a process lives: who it is, whether it still runs, marks of its work, and
ending with its parent.

A process leaves a small file that names it where others must know of it: who holds a run
(`run/hold.py`) or works in a folder (`run/survivors.py`). They may be on different nodes of a
cluster and share nothing but files; locks of the operating system hold on one node only on many
cluster file systems. How ranks show that they still answer is in `heartbeats.py`.
"""

import ctypes
import json
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from ddlbench.core.files import hidden_host, write_json

HIDDEN = "hidden"  # in place of a state: a process of another user, which this system hides


@dataclass(frozen=True)
class Process:
    """A process on a host. `born` distinguishes it from a later one with its number; `job` is its
    SLURM job, "" without.
    """

    host: str
    pid: int
    born: str
    job: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" + (
            f", SLURM job {self.job}" if self.job else ""
        )


def myself() -> Process:
    """Return this process."""
    pid = os.getpid()
    return Process(socket.gethostname(), pid, _born(pid), os.environ.get("SLURM_JOB_ID", ""))


def lives(process: Process) -> bool | None:
    """Return whether that process still runs; None if it is on another host, or if this host hides
    processes of other users (`hidepid`) and one of them has its number.

    `run/hold.py` queries SLURM then.
    """
    if process.host != socket.gethostname():
        return None
    born = _born(process.pid)
    if not born and process.born.startswith(_boot()) and _is_another_users(process.pid):
        return None
    return born == process.born


def _is_another_users(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):  # no process has this number
        pass
    return False


class UnendedError(RuntimeError):
    """The error that processes were killed and do not end; one line."""


def state(pid: int) -> str | None:
    """Return psutil's word for the state of a process of this host; None if the process has ended.

    A zombie has ended. It is only a line in the system's process list until its parent collects it,
    and some parents (PID 1 of a container) never do.
    """
    try:
        word = psutil.Process(pid).status()
    except (psutil.NoSuchProcess, OverflowError, ValueError):  # no process has such a number
        return None
    except psutil.AccessDenied:
        return HIDDEN
    return None if word in (psutil.STATUS_DEAD, psutil.STATUS_ZOMBIE) else word


def end(processes: Iterable[psutil.Process], timeout_s: float = 10.0) -> None:
    """Kill processes and wait until none lives. Raises UnendedError if one still does after
    `timeout_s`.
    """
    members = [*processes]
    for member in members:
        with suppress(
            psutil.NoSuchProcess
        ):  # raised too if another process has got its number since
            member.kill()
    if left := unended(members, timeout_s):
        raise UnendedError(left)


def unended(processes: Iterable[psutil.Process], timeout_s: float) -> str:
    """Wait for processes that were killed.

    Return a message about those that live all the same; "" if none does.
    """
    until, living = time.monotonic() + timeout_s, [*processes]
    while True:
        living = [process for process in living if process.is_running() and state(process.pid)]
        if not living or time.monotonic() >= until:
            break
        time.sleep(0.05)
    if not living:
        return ""
    named = ", ".join(f"{process.pid} ({state(process.pid) or 'ended'})" for process in living)
    why = "it waits in the system for a file system or a device that does not answer"
    return f"killed, but still running: process {named} on {socket.gethostname()}; {why}"


def remove_left(folder: Path) -> None:
    """Remove the temporary files that killed processes of this host left in a folder and its
    subfolders.
    """
    host = hidden_host()
    with suppress(OSError):  # another user's, or gone meanwhile
        for path in sorted(folder.rglob(f"{host}*-*")):
            number = path.name.removeprefix(host).split("-")[0]
            if not number.isdigit() or state(int(number)) is None:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def read(path: Path) -> Process | None:
    """Read the process that a file names; None if the file has gone or cannot be understood."""
    try:
        named = json.loads(path.read_text(encoding="utf-8"))
        process = Process(named["host"], named["pid"], named["born"], named.get("job", ""))
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return (
        process if isinstance(process.born, str) else None
    )  # marks of earlier versions have another form


def mark(path: Path, every_s: float) -> Callable[[], None]:
    """Leave a file that names this process, and touch it every so many seconds; returns what ends
    it.

    Whoever may write where its folder lies may write into the folder. A mark that cannot be written
    is left out.
    """
    me, ended = asdict(myself()), threading.Event()

    def touch() -> None:
        with suppress(OSError):
            if not path.parent.exists():
                path.parent.mkdir(parents=True)
                path.parent.chmod(path.parent.parent.stat().st_mode & 0o7777)
            try:
                os.utime(path)
            except FileNotFoundError:
                write_json(path, me)

    def keep() -> None:
        while not ended.wait(every_s):
            touch()

    def end() -> None:
        ended.set()
        with suppress(OSError):
            path.unlink()

    touch()
    threading.Thread(target=keep, daemon=True).start()
    return end


def die_with_parent() -> None:
    """Make Linux kill this process when its parent dies, even by kill -9: for a process that has
    just been forked.
    """
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@contextmanager
def ending_descendants() -> Iterator[None]:
    """Kill every process that descends from one which the block started, daemons among them, until
    none is left.

    Meanwhile this process is the parent of what its children leave behind. Processes of before the
    block are spared.
    """
    _adopt_orphans(True)
    spared = {*psutil.Process().children(recursive=True)}
    try:
        yield
    finally:
        for _ in range(100):  # some may be forking meanwhile
            children = psutil.Process().children(recursive=True)
            living = [child for child in children if child not in spared and state(child.pid)]
            if not living:
                break
            for child in living:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            psutil.wait_procs(
                living, timeout=0.5
            )  # it also collects those that are zombies of ours
        _adopt_orphans(False)


def _adopt_orphans(whether: bool) -> None:
    ctypes.CDLL(None).prctl(36, int(whether))  # PR_SET_CHILD_SUBREAPER


def _born(pid: int) -> str:
    """Return when a living process began, in ticks since that boot; "" if there is none, or only a
    zombie.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    except OSError:
        return ""
    return "" if state(pid) is None else f"{_boot()} {fields[19]}"


def _boot() -> str:
    """Return what distinguishes this boot of the system from others; "" where it does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
