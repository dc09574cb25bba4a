"""Timed runs of one computer take turns, whichever study, folder or terminal they are of: each
would measure the other.

A turn is a lock on a file of this user in a folder of this computer. The system lets go of it when
its process ends, however that ends, `kill -9` among it. The file says who has it. Within a job of
SLURM nobody takes turns: its nodes are the job's own. Untimed work does not ask.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlbench.core.files import printable, read_bytes
from ddlbench.slurm import step

if TYPE_CHECKING:
    from filelock import FileLock

# A variable: where locks lie, for sessions whose /tmp is not that of the others; empty: nobody
# takes turns.
FOLDER = "DDLBENCH_TURNS"
POLL_S = 0.5


@contextmanager
def turn(what: str, timed: bool = True) -> Iterator[None]:
    """Reserve the computer for a timed job `what` while the block runs.

    Waits while another process has it, and says so in one line.
    """
    path = _lock_file() if timed and not step.job() else None
    lock = _acquire(what, path) if path else None
    if path is None or lock is None:
        yield
        return
    try:
        with suppress(OSError):
            _holder_file(path).write_text(
                json.dumps({"pid": os.getpid(), "what": what, "where": str(Path.cwd())})
            )
        yield
    finally:
        with suppress(OSError):
            _holder_file(path).unlink()
        lock.release()


def _acquire(what: str, path: Path) -> FileLock | None:
    """Wait for the lock and return it; None where it cannot be had: the run goes on without it."""
    from filelock import FileLock, Timeout

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(path, poll_interval=POLL_S)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            say(waiting(what))
            lock.acquire()
    except OSError as error:
        say(f"{what} cannot take turns with other studies on this machine: {error}")
        return None
    return lock


def waiting(what: str) -> str:
    """Return the line that says for whom `what` waits."""
    other = holder()
    if not other:
        return f"{what} waits for another timed run on this machine; it starts when that one ends"
    pid, name, where = other["pid"], printable(other["what"]), printable(other["where"])
    return (
        f"{what} waits: process {pid} makes {name} in {where} on this machine, and both are timed;"
        f" it starts when that one ends, or after: kill {pid}"
    )


def notice(other: Mapping[str, Any]) -> str:
    """Return the line that a Snakemake prints at its start about who has the computer then."""
    return (
        f"another study trains on this machine: process {other['pid']}, in"
        f" {printable(other['where'])}; timed runs take turns with its"
    )


def holder() -> dict[str, Any]:
    """Return which process has the computer now, and for what; empty if none has, or it does not
    say.
    """
    from filelock import FileLock, Timeout

    path = _lock_file()
    if path is None or not path.exists():
        return {}
    try:
        with FileLock(path, timeout=0):
            return {}
    except Timeout:
        pass
    except OSError:
        return {}
    with suppress(OSError, ValueError):
        holder_facts = json.loads(read_bytes(_holder_file(path)))
        if isinstance(holder_facts, dict) and {"pid", "what", "where"} <= holder_facts.keys():
            return holder_facts
    return {}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _lock_file() -> Path | None:
    """Return the lock's file: of this user on this computer.

    A home folder is shared by the nodes of a cluster.
    """
    folder = os.environ.get(FOLDER, f"/tmp/ddlbench-{os.getuid()}")
    if not folder:
        return None
    return Path(folder) / f"timed-{socket.gethostname()}.lock"


def _holder_file(lock: Path) -> Path:
    """Return the file that says who holds the lock."""
    return lock.with_suffix(".json")
