"""How ranks show that they live: each to its node, in memory; one rank of each node to the
supervisor, in a file.

A rank writes a number every few seconds into a folder that the ranks of its node share
(`/dev/shm`). The node's first rank (local rank 0) reads these, names a rank that falls silent in a
note (`silent-<rank>.json`), and writes `beat-<its rank>` into the run's folder. `run/watch.py`
reads both. So the shared file system sees one small write per node, and not one per rank; and a
rank that waits for the file system is not taken for one that has stopped.
"""

import hashlib
import os
import stat
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil

from ddlbench.core import living
from ddlbench.core.files import write_json

HEARTBEAT_S = 5.0  # a rank sends one as often, and its node's first rank looks
MAX_HEARTBEAT_S = 60.0
# of so many nodes one sends its heartbeat each second, so that a large run writes no more than a
# middling one
NODES_PER_S = 10
POLL_S, MANY_POLL_S = 2.0, 10.0  # between two looks of the supervisor: with one node, with more
SILENT_S = (
    40.0  # after so much silence a rank has stopped answering; a machine file may say another
)
GRACE_S = 60.0  # how long ranks may take to write a checkpoint after the request to stop; likewise
FORGOTTEN_S = 600.0  # who has not beaten for so long, and has no process here, does not live
SILENT = "silent"  # the note that names a silent rank
ENDED = "ended"  # the last note of a rank: its work is done


def node_heartbeat_s(nodes: int) -> float:
    """Return the time between two heartbeats of one node [s]: HEARTBEAT_S on few nodes, else so
    that all together make NODES_PER_S.
    """
    return min(MAX_HEARTBEAT_S, max(HEARTBEAT_S, nodes / NODES_PER_S))


def poll_s(nodes: int) -> float:
    """Return the time between two looks of the supervisor at the heartbeats [s]."""
    return POLL_S if nodes == 1 else MANY_POLL_S


def node_silent_s(silent_s: float, nodes: int) -> float:
    """Return the heartbeat timeout of a node's local rank 0 [s]: at least two heartbeats more than
    usual.
    """
    return silent_s + 2 * (node_heartbeat_s(nodes) - HEARTBEAT_S)


def noticed_s(silent_s: float, nodes: int) -> float:
    """Return the longest time that any rank can be silent until the supervisor knows [s]."""
    return node_silent_s(silent_s, nodes) + 2 * node_heartbeat_s(nodes) + poll_s(nodes)


def node_folder(folder: Path) -> Path | None:
    """Return the folder for the heartbeats of this node's ranks that make the record in `folder`:
    in memory if there is any; None if nowhere.

    Raises nothing: without it, only each node's first rank is watched.
    """
    for here in _places(folder):
        with suppress(OSError):
            here.mkdir(mode=0o700, exist_ok=True)
            if here.stat().st_uid == os.getuid():  # another user may have made one of this name
                return here
    return None


def _places(folder: Path) -> list[Path]:
    """List where `node_folder` may be, the best place first."""
    name = f"{_ours()}{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]}"
    return [base / name for base in _bases()]


def _ours() -> str:
    return f"ddlbench-{os.getuid()}-"


def _bases() -> tuple[Path, ...]:
    return Path("/dev/shm"), Path(tempfile.gettempdir())


def tidy(folder: Path) -> None:
    """Remove what a run's ranks left in this node's memory: they have ended, some without a chance
    to do it.
    """
    for here in _places(folder):
        _clear(here, 0.0)


def tidy_others() -> None:
    """Remove from this node's memory what ranks of earlier runs left when they were killed."""
    for base in _bases():
        for here in base.glob(f"{_ours()}*"):
            _clear(here, FORGOTTEN_S)


def _clear(node_dir: Path, older_s: float) -> None:
    """Remove the heartbeats of processes that are gone, and the folder if nothing else is left.

    Both are removed only after `older_s` without a change: a process of a container can be
    invisible here, and a rank that has just made its folder has no heartbeat yet. A folder of
    another user, or a link to one, stays.
    """
    with suppress(
        OSError, ValueError, IndexError, OverflowError
    ):  # no heartbeats lie there; or another rank did it
        about, now = node_dir.lstat(), time.time()
        if about.st_uid != os.getuid() or not stat.S_ISDIR(about.st_mode):
            return
        for beat in node_dir.iterdir():
            gone = living.state(int(beat.name.split("-")[1])) is None
            if gone and now - beat.lstat().st_mtime >= older_s:
                beat.unlink()
        if now - about.st_mtime >= older_s:
            node_dir.rmdir()


def write_heartbeat(path: Path, count: int) -> None:
    """Overwrite the heartbeat's number.

    It takes the same room, so a full disk does not matter, and a reader never finds an empty file.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{count:12d}\n".encode())
    finally:
        os.close(file)


def read_heartbeat(path: Path) -> bytes:
    """Read what `write_heartbeat` left, in three system calls, because a supervisor reads many."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 64)
    finally:
        os.close(file)


_ended = threading.Event()  # this process sends no more heartbeats
_threads: list[threading.Thread] = []  # those that beat; of a node's first rank there are two


def keep_beating(
    folder: Path, rank: int, local_rank: int, nodes: int, silent_s: float = SILENT_S
) -> None:
    """Write heartbeats in threads until `end`.

    The threads end this process if its launcher has died: nothing would save the record.
    """
    if local_rank == 0:
        tidy_others()
    parent, here = os.getppid(), node_folder(folder)
    for path in _heartbeats(
        here
    ):  # by an earlier try: this rank's, and those of processes that are gone
        with suppress(OSError, ValueError):
            number, process = map(int, path.name.split("-"))
            if number == rank or (local_rank == 0 and living.state(process) is None):
                path.unlink()

    def beat() -> None:
        count = 0
        while os.getppid() == parent:
            count += 1
            if here is not None:
                _heartbeat(here / f"{rank}-{os.getpid()}", count)
                if not here.is_dir():  # somebody has tidied this node's memory
                    node_folder(folder)
            if _ended.wait(HEARTBEAT_S):
                return
        _leave(folder, rank)
        os._exit(1)

    _threads[:] = [threading.Thread(target=beat, daemon=True)]
    if local_rank == 0:
        _threads.append(
            threading.Thread(target=_lead, args=(folder, here, rank, nodes, silent_s), daemon=True)
        )
    for thread in _threads:
        thread.start()


def _heartbeat(path: Path, count: int) -> None:
    """Write a heartbeat; remove the one before if that fails: a heartbeat that cannot change would
    look like silence.
    """
    try:
        write_heartbeat(path, count)
    except OSError:
        with suppress(OSError):
            path.unlink()


def _lead(folder: Path, node_dir: Path | None, rank: int, nodes: int, silent_s: float) -> None:
    """Write a node's heartbeat, and name those of its ranks whose heartbeat has timed out.

    The node's local rank 0 does this.
    """
    count, reader, last = 0, HeartbeatReader(silent_s), -MAX_HEARTBEAT_S
    while True:
        now = time.monotonic()
        if now - last >= node_heartbeat_s(nodes):
            count, last = count + 1, now
            _heartbeat(folder / f"beat-{rank}", count)
        for other, process, seconds in reader.silent(node_dir, now):
            if other != rank:
                status = living.state(process)
                if status is not None:  # one that has died is the launcher's to notice
                    stopped = (
                        ", its process is stopped (SIGSTOP)"
                        if status == psutil.STATUS_STOPPED
                        else ""
                    )
                    why = f"did not answer for {seconds:.0f} s{stopped}"
                    with suppress(OSError):
                        write_json(folder / f"{SILENT}-{other}.json", {"why": why})
        if _ended.wait(HEARTBEAT_S):
            return


class Standstill:
    """A memory of how long numbers that others write have not changed."""

    def __init__(self) -> None:
        self.last: dict[
            object, tuple[bytes, float]
        ] = {}  # by owner: its number, and since when it has it

    def seconds(self, whose: object, number: bytes, now: float) -> float:
        """Return for how long a number has not changed, at the time `now` [s]; 0 for an empty
        number, for which there was no space.
        """
        if not number:
            return 0.0
        before, since = self.last.get(whose, (number, now))
        self.last[whose] = number, now if number != before else since
        return now - self.last[whose][1]


class HeartbeatReader:
    """The heartbeats of a node's ranks, as one of them sees them."""

    def __init__(self, silent_s: float) -> None:
        self.silent_s = silent_s
        self.standstill = Standstill()  # by file
        self.looked: float | None = None
        self.clock = 0.0  # time in which this rank could look [s]

    def silent(self, node_dir: Path | None, now: float) -> list[tuple[int, int, float]]:
        """Yield rank, process and limit of those whose number has not changed for `silent_s`.

        One heartbeat is enough: a rank may stop before its second.
        """
        # A rank that was itself held up, by a stalled file system or a SIGSTOP, has not listened
        # meanwhile.
        self.clock += min(now - self.looked, 2 * HEARTBEAT_S) if self.looked is not None else 0.0
        self.looked = now
        silent = []
        for path in _heartbeats(node_dir):
            with suppress(OSError, ValueError):
                number, rank, process = read_heartbeat(path), *map(int, path.name.split("-"))
                if self.standstill.seconds(path.name, number, self.clock) > self.silent_s:
                    silent.append((rank, process, self.silent_s))
        return silent


def _heartbeats(node_dir: Path | None) -> list[Path]:
    """List the files of `node_folder`; none where the last rank that ended has removed the
    folder.
    """
    with suppress(OSError):
        return list(node_dir.iterdir()) if node_dir else []
    return []


def end(folder: Path, rank: int, well: bool = False) -> None:
    """Stop the heartbeat, and leave nothing in this node's memory.

    After work that ended without an error, leave the last note.

    A node's first rank then waits until the others of its node have ended, too: no other process
    would notice that one stops. It does not wait for the first rank of another node that shares
    this memory (nodes may be virtual): each would wait for the other.
    """
    here = node_folder(folder)
    while (
        well and len(_threads) > 1 and any(_other_lives(folder, path) for path in _heartbeats(here))
    ):
        time.sleep(0.1)
    if well:
        with suppress(OSError):  # it is empty, so that a full disk takes it
            (folder / f"{ENDED}-{rank}.json").touch()
    _ended.set()
    for thread in _threads:
        thread.join(1.0)  # a frozen file system may hold it
    _leave(folder, rank)


def _leave(folder: Path, rank: int) -> None:
    """Remove this rank's heartbeat from this node's memory, and the folder if it is the last."""
    here = node_folder(folder)
    with suppress(OSError):
        if here is not None:
            (here / f"{rank}-{os.getpid()}").unlink(missing_ok=True)
            here.rmdir()  # the last one can


def _other_lives(folder: Path, beat: Path) -> bool:
    """Tell whether this heartbeat is of another process, which still runs and is no node's first
    rank.
    """
    with suppress(ValueError, IndexError, OverflowError):
        rank, process = beat.name.split("-")
        first = (folder / f"beat-{rank}").exists()
        return not first and int(process) != os.getpid() and living.state(int(process)) is not None
    return False


def has_ended(folder: Path, rank: int) -> bool:
    """Tell whether a rank has left its last note. Raises nothing."""
    with suppress(OSError):
        return (folder / f"{ENDED}-{rank}.json").exists()
    return False
