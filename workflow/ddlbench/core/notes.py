"""What ranks leave for the supervisor in their run's folder: who they are, why they failed, that
they stopped.

Ranks write (`rank/`, `preflight/scout.py`); `run/watch.py` reads. Every note is a small JSON file
with the rank's number in its name, written aside and then renamed. How ranks show that they still
live is in `core/heartbeats.py`.
"""

import errno
import json
import os
import signal
import socket
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from ddlbench.core.files import write_json

# sysexits.h: EX_TEMPFAIL, "try again". A run that stopped on request and left a checkpoint ends
# with it.
STOPPED = 75
# Ask a rank for a checkpoint and its end: Snakemake's and a pre-empted job's, and SLURM's warning
# before the limit.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
# Takes up room in a run's folder while the run is made, so that on a full disk ranks can still say
# why they ended. Room on the disk for a rank to say why it ended, and for the supervisor; a rank's
# may be taken by the other ranks.
RESERVES, RESERVE_BYTES = (".reserve-ranks", ".reserve-supervisor"), 1 << 15
DISK_FULL = "disk full"  # a cause
STOPPED_NOTE = "stopped"  # rank 0 leaves it beside the checkpoint
# What Gloo, NCCL and Horovod say when the other side of a connection is gone.
LOST = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "has been shut down",
    "socket closed",
    "another rank has lost its way",
    "connection refused",
    "remote process exited",
    "nccl communicator was aborted",
    "timed out waiting",
    # a loader's process, by the launcher that ends all ranks when one is gone
    "is killed by signal: terminated",
    "ended by its launcher",  # a rank of inference, by the same launcher
)


class LossError(ArithmeticError):
    """The error that the loss of a step is NaN or infinite.

    `step` is the first such step of this rank.
    """

    def __init__(self, message: str, step: int) -> None:
        super().__init__(message)
        self.step = step


def introduce(
    folder: Path, rank: int, local_rank: int, usage: dict[str, Any] | None = None
) -> None:
    """Tell `ddlbench.run` which process is this rank; in the end, also its `usage` (`measure.py`)."""
    started = psutil.Process().create_time()  # a later process may have the same number
    who = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": started,
        "local_rank": local_rank,
    }
    write_json(folder / f"rank-{rank}.json", who | topology() | (usage or {}))


def topology() -> dict[str, str]:
    """Return this node's place in the network: its switches from the top down, and the node itself.

    Empty where SLURM does not report it.

    `topology_pattern` describes each part (`switch.switch.node`);
    https://slurm.schedmd.com/topology.html.
    """
    names = {"topology": "SLURM_TOPOLOGY_ADDR", "topology_pattern": "SLURM_TOPOLOGY_ADDR_PATTERN"}
    return {key: os.environ[name] for key, name in names.items() if os.environ.get(name)}


def reserve(folder: Path) -> None:
    """Take up some room, to be given back before reasons are written. Random, as some file systems
    store no zeros.
    """
    for name in RESERVES:
        (folder / name).write_bytes(os.urandom(RESERVE_BYTES))


def give_back(folder: Path, *names: str) -> None:
    """Make the room of these reserves free, before something is written on a disk that may be
    full.
    """
    for name in names:
        (folder / name).unlink(missing_ok=True)


def report(folder: Path, rank: int, error: BaseException) -> None:
    """Leave why this rank ended, for `ddlbench.run`."""
    give_back(folder, RESERVES[0])
    message = "".join(traceback.format_exception_only(error)).strip()
    note = {
        "cause": cause(error),
        "message": message,
        "time": time.time(),
        "step": getattr(error, "step", None),
    }
    write_json(folder / f"failure-{rank}.json", note)


def cause(error: BaseException) -> str:
    """Return what happened, in one of a few phrases that tables can count.

    On a full disk, an error may be caused by another error.
    """
    text = str(error).lower()
    if isinstance(error, LossError):
        return "loss is not finite"
    if type(error).__name__ == "WorldError":
        return "wrong number of ranks"
    if isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text:
        return "out of memory"
    if any(_says_disk_full(origin) for origin in _origins(error)):
        return DISK_FULL
    if "address already in use" in text or "eaddrinuse" in text:
        return "port in use"
    if any(words in text for words in LOST):
        return "lost another rank"
    return "exception"


def _origins(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and those that caused it, the last one first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _says_disk_full(error: BaseException) -> bool:
    return (
        getattr(error, "errno", None) == errno.ENOSPC
        or "no space left on device" in str(error).lower()
    )


def read(folder: Path, kind: str) -> dict[int, dict[str, Any]]:
    """Read what ranks left under `<kind>-<rank>.json`, by rank."""
    by_rank = {}
    with suppress(OSError):
        for path in folder.glob(f"{kind}-*.json"):
            with suppress(OSError, ValueError):  # gone meanwhile; or ESTALE and EIO, which may pass
                by_rank[int(path.stem.split("-")[1])] = json.loads(path.read_text(encoding="utf-8"))
    return by_rank
