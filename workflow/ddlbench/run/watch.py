"""Watch the ranks of a run from outside: which died, stopped answering or were told to stop.
`cause.py` says why.

Ranks leave notes in the run's folder (`core/notes.py`): who they are, how they failed. Each node's
beat (`core/heartbeats.py`) is read about as often as it is written. Whatever happens, no process of
the run lives longer than the run.
"""

import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from ddlbench.core import heartbeats, living, notes
from ddlbench.run.rehearsal import Rehearsal
from ddlbench.slurm import srun_messages, step

PROBE = ".probe"
LATE_S = 5.0  # a write that takes longer is a stall
# How often to look whether the launcher has ended, where the kernel does not say so.
UNHEARD_S = 0.5
ANSWERS = (errno.ENOSPC, errno.EDQUOT)  # a full file system is one that works


@dataclass
class WatchResult:
    """The result of watching: how the launcher ended, and what was seen of its ranks before."""

    code: int = 0  # the launcher's exit code
    stopped: bool = False  # as it was told to, with a checkpoint
    signal: int | None = None  # the signal that told us to stop
    silent: dict[int, str] = field(default_factory=dict)  # rank -> how it stopped answering
    gone: list[int] = field(default_factory=list)  # ranks of this machine that died, in that order
    out_of_memory: bool = False  # the kernel killed a process of ours
    damaged: list[str] = field(
        default_factory=list
    )  # why the ranks were not started: what is wrong with the data
    unended: str = ""  # what to say of processes that were killed and do not end
    printed: str = ""  # what stands in the log since the launcher started


class Probe(threading.Thread):
    """A probe that writes a few bytes into a folder, again and again, and counts the seconds in
    which that worked: `good_s`. Silence counts only in these: in a stalled file system there is no
    heartbeat, and yet nobody is dead.

    The probe has a thread of its own, because such a file system holds whoever writes, and a
    supervisor must still hear its launcher end and its signals.
    """

    def __init__(self, folder: Path, every_s: float) -> None:
        super().__init__(daemon=True)
        self.path, self.every_s = folder / PROBE, every_s
        self.good_s = 0.0
        self.ended = threading.Event()
        self.stalls = False
        self.began: float | None = None  # the write that is under way

    def run(self) -> None:
        last = time.monotonic()
        while not self.ended.wait(self.every_s):
            began = self.began = time.monotonic()
            works = self._write()
            now, self.began = time.monotonic(), None
            if works and now - began < LATE_S:
                self.good_s += min(
                    now - last, 2 * self.every_s
                )  # we may have been stopped ourselves
            last = now

    def _write(self) -> bool:
        try:
            with self.path.open("wb", buffering=0) as file:
                file.write(b"1")
                os.fsync(file)
        except OSError as error:  # ESTALE, EIO: it may come back
            return error.errno in ANSWERS
        return True

    def tell(self) -> None:
        """Print once that the file system stalls, and once that it works again."""
        began = self.began
        stalls = began is not None and time.monotonic() - began > LATE_S
        if stalls != self.stalls:
            now = "does not answer; waiting for it" if stalls else "answers again"
            print(f"the file system of {self.path.parent} {now}", file=sys.stderr, flush=True)
            self.stalls = stalls


class RankMonitor:
    """The state of the ranks as known so far.

    `ranks`: what each said of itself, by number; `silent`: how one stopped answering.
    """

    def __init__(self, folder: Path, probe: Probe, silent_s: float, nodes: int) -> None:
        self.folder, self.probe = folder, probe
        self.silent_s, self.heartbeat_s = (
            heartbeats.node_silent_s(silent_s, nodes),
            heartbeats.node_heartbeat_s(nodes),
        )
        self.ranks: dict[int, dict[str, Any]] = {}
        self.silent: dict[int, str] = {}
        self.standstill = heartbeats.Standstill()  # of nodes' first ranks, by the probe's clock
        self.read: dict[int, float] = {}  # when its beat was read

    def listen(self) -> None:
        """Look at what is new. Raises nothing: what cannot be read now may be there the next
        time.
        """
        with suppress(OSError):
            for path in self.folder.iterdir():
                kind, _, rest = path.name.partition("-")
                notes: dict[int, Any] = self.ranks if kind == "rank" else self.silent
                if kind in ("rank", heartbeats.SILENT) and rest.endswith(".json"):
                    with suppress(OSError, ValueError, KeyError):
                        if (rank := int(rest.removesuffix(".json"))) not in notes:
                            note = json.loads(path.read_text(encoding="utf-8"))
                            notes[rank] = note if kind == "rank" else note["why"]
        now = time.monotonic()
        for rank in [rank for rank, who in self.ranks.items() if who.get("local_rank") == 0]:
            if now - self.read.get(rank, -self.heartbeat_s) >= 0.9 * self.heartbeat_s:
                self.read[rank] = now
                with suppress(OSError):
                    number = heartbeats.read_heartbeat(self.folder / f"beat-{rank}")
                    if self.standstill.seconds(rank, number, self.probe.good_s) > self.silent_s:
                        self.silent[rank] = f"did not answer for {self.silent_s:.0f} s"
        self.probe.tell()


def watch(
    argv: list[str],
    folder: Path,
    variables: Mapping[str, str] | None = None,
    *,
    nodes: int = 1,
    silent_s: float = heartbeats.SILENT_S,
    grace_s: float = heartbeats.GRACE_S,
    rehearsal: Rehearsal | None = None,
) -> WatchResult:
    """Run the launcher to its end, with these variables in its environment, and watch the ranks
    that it starts.

    `silent_s` is the silence after which a rank has stopped answering, `grace_s` the time that
    ranks get for a checkpoint when they are told to stop. The launcher gets a process group of its
    own, so that nothing it started outlives it or us. A `rehearsal` goes on while ranks start; if
    it fails they are ended, and this raises what it raised.
    """
    seen, killed_before, by_srun = WatchResult(), _killed_for_memory(), "srun" in argv
    log = srun_messages.log_position()
    settings = dict(word.split("=", 1) for word in argv[1:] if "=" in word)
    remove_build_locks({**os.environ, **(variables or {}), **settings})
    around = {**os.environ} if by_srun else step.outside(os.environ)
    process = subprocess.Popen(
        argv,
        start_new_session=True,
        preexec_fn=living.die_with_parent,
        env=around | {**(variables or {})},
    )
    ours = psutil.Process(process.pid)
    ended = _readable_at_end(process)
    family: dict[int, psutil.Process] = {}
    told_at = float("inf")

    def tell(number: int, frame: FrameType | None) -> None:
        """Handle a signal. The first SIGTERM or SIGUSR1 asks ranks for a checkpoint.

        A second one, or SIGINT, ends them at once.
        """
        nonlocal told_at
        if seen.signal is not None or number == signal.SIGINT:
            told_at = -float("inf")
        else:
            told_at = time.monotonic()
            # srun passes a signal on to its ranks, on all nodes. Other launchers would die of it;
            # their ranks are here.
            pids = (
                [process.pid]
                if by_srun
                else [r["pid"] for r in notes.read(folder, "rank").values()]
            )
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR1)
        seen.signal = number

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, tell)
    poll_s = heartbeats.poll_s(nodes)
    probe = Probe(folder, poll_s)
    probe.start()
    if rehearsal:
        rehearsal.start()
    monitor = RankMonitor(folder, probe, silent_s, nodes)
    while process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            family |= {child.pid: child for child in ours.children(recursive=True)}
        monitor.listen()
        look(monitor, family, seen)
        failed = rehearsal is not None and rehearsal.error is not None
        if seen.silent or failed or time.monotonic() - told_at > grace_s:
            break
        select.select(ended, [], [], poll_s if ended else min(poll_s, UNHEARD_S))
    for descriptor in ended:
        os.close(descriptor)
    probe.ended.set()
    if process.poll() is None and by_srun:
        process.terminate()  # then srun ends the ranks on other nodes
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        living.end([ours, *family.values()])
    except living.UnendedError as error:
        seen.unended = str(error)
    if rehearsal:
        rehearsal.settle()
    code = process.poll()
    code = -signal.SIGKILL if code is None else code  # it does not end: nobody may wait for it
    seen.code = code if code >= 0 else 128 - code
    if seen.silent and seen.code == 0:
        seen.code = 1
    seen.out_of_memory = _killed_for_memory() > killed_before
    seen.printed = srun_messages.written_since(log)
    failures = notes.read(folder, "failure")
    seen.stopped = seen.code != 0 and (folder / notes.STOPPED_NOTE).exists() and not failures
    return seen


def _readable_at_end(process: subprocess.Popen[bytes]) -> list[int]:
    """Return a descriptor that can be read once the process has ended: subprocess's own wait wakes
    up 20 times a second. None with a Python built on Linux before 5.3, as some ready-made ones are.
    """
    try:
        return [os.pidfd_open(process.pid)]
    except (AttributeError, OSError):
        return []


def remove_build_locks(variables: Mapping[str, str]) -> None:
    """Remove torch's build locks that killed builders left; others would wait for ever
    (torch/utils/file_baton.py). A builder keeps its lock open. Those on other nodes cannot be seen:
    on SLURM a lock must be an hour old, too.
    """
    root, cache = (
        variables.get("TORCH_EXTENSIONS_DIR"),
        Path(variables.get("XDG_CACHE_HOME") or "~/.cache"),
    )
    there = (
        Path(root).glob("*/lock") if root else cache.expanduser().glob("torch_extensions/*/*/lock")
    )
    locks = {str(lock.resolve()) for lock in there}
    for process in psutil.process_iter() if locks else ():
        with suppress(psutil.Error):
            locks -= {file.path for file in process.open_files()}
    for lock in map(Path, locks):
        with suppress(OSError):
            about, age_s = lock.stat(), 3600 if step.job(variables) else 0
            if about.st_uid == os.getuid() and time.time() - about.st_mtime >= age_s:
                lock.unlink()
                print(f"{lock}: its builder was killed; removed", flush=True)


def end_survivors(folder: Path) -> None:
    """Kill ranks of an earlier try that still live on this machine.

    Their supervisor was killed, and they would write into the folder of the next try. Raises
    living.UnendedError if one does not end.
    """
    for rank, who in notes.read(folder, "rank").items():
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(who["pid"])
            ours = who["host"] == socket.gethostname() and process.create_time() == who["started"]
            if ours and living.state(process.pid):
                print(
                    f"rank {rank} of an earlier attempt still runs (process {process.pid}): killing"
                    " it",
                    flush=True,
                )
                living.end([process, *process.children(recursive=True)])


def look(monitor: RankMonitor, family: dict[int, psutil.Process], seen: WatchResult) -> None:
    """Note which ranks have died, and which stopped answering. A rank that ended has done
    neither.
    """
    monitor.silent = {
        rank: why
        for rank, why in monitor.silent.items()
        if not heartbeats.has_ended(monitor.folder, rank)
    }
    for rank, who in monitor.ranks.items():
        if who["pid"] not in family:  # it is on another node
            continue
        process = family[who["pid"]]
        status = living.state(process.pid) if process.is_running() else None
        if status is None:
            if rank not in seen.gone and not heartbeats.has_ended(monitor.folder, rank):
                seen.gone.append(rank)
            monitor.silent.pop(rank, None)
        elif (
            rank in monitor.silent
            and status == psutil.STATUS_STOPPED
            and "SIGSTOP" not in monitor.silent[rank]
        ):
            monitor.silent[rank] += ", its process is stopped (SIGSTOP)"
    seen.silent |= monitor.silent


def _killed_for_memory() -> int:
    """Return how many processes of our control group the kernel has killed for memory; 0 where it
    does not count them.
    """
    try:
        group = (
            Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()[-1].split(":", 2)[2]
        )
        events = Path(f"/sys/fs/cgroup{group}/memory.events").read_text(encoding="utf-8").split()
        return int(events[events.index("oom_kill") + 1])
    except (OSError, ValueError, IndexError):
        return 0
