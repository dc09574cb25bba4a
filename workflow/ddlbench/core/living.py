"""What it means that a process lives: who it is, whether it still runs, marks of its work, and ending with its parent.

A process leaves a small file that names it where others must know of it: who holds a run (`run/hold.py`) or works in a
folder (`run/survivors.py`). They may be on different nodes of a cluster and share nothing but files; locks of the
operating system hold on one node only on many cluster file systems. How ranks show that they still answer is in
`beats.py`.
"""

import ctypes
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from ddlbench.core.files import write_json


@dataclass(frozen=True)
class Process:
    """A process on a host. `born` tells it from a later one with its number; `job` is its SLURM job, "" without."""

    host: str
    pid: int
    born: str
    job: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" + (f", SLURM job {self.job}" if self.job else "")


def myself() -> Process:
    """This process."""
    pid = os.getpid()
    return Process(socket.gethostname(), pid, _born(pid), os.environ.get("SLURM_JOB_ID", ""))


def lives(process: Process) -> bool | None:
    """Whether that process still runs; None if it is on another host. `run/hold.py` asks SLURM then."""
    return _born(process.pid) == process.born if process.host == socket.gethostname() else None


def state(pid: int) -> str | None:
    """psutil's word for a process of this host; None if it has ended."""
    try:
        word = psutil.Process(pid).status()
    except psutil.Error:
        return None
    return None if word in (psutil.STATUS_DEAD, psutil.STATUS_ZOMBIE) else word


def read(path: Path) -> Process | None:
    """The process that a file names; None if the file has gone or cannot be understood."""
    try:
        named = json.loads(path.read_text(encoding="utf-8"))
        process = Process(named["host"], named["pid"], named["born"], named.get("job", ""))
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return process if isinstance(process.born, str) else None  # marks of versions before this told it otherwise


def mark(path: Path, every_s: float) -> Callable[[], None]:
    """Leave a file that names this process, and touch it every so many seconds; returns what ends it.

    Whoever may write where its folder lies may write into the folder. A mark that cannot be written is left out.
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
    """Have Linux kill this process when its parent dies, even by kill -9: for a process that has just been forked."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@contextmanager
def ending_descendants() -> Iterator[None]:
    """Kill every process that descends from one which the block started, daemons among them, until none is left.

    Meanwhile this process is the parent of what its children leave behind. Processes of before the block are spared.
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
            psutil.wait_procs(living, timeout=0.5)
        _adopt_orphans(False)


def _adopt_orphans(whether: bool) -> None:
    ctypes.CDLL(None).prctl(36, int(whether))  # PR_SET_CHILD_SUBREAPER


def _born(pid: int) -> str:
    """When a living process began, in ticks since that boot; "" if there is none, or only a zombie."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        word, *fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    except OSError:
        return ""
    return "" if word == "Z" else f"{boot} {fields[18]}"
