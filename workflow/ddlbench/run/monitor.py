"""What the supervisor hears of its ranks through the shared file system: who they are, and which have fallen silent.

Rank notes are read once. Each node's beat (`core/beats.py`) is read about as often as it is written. Silence counts
only while the supervisor itself can write where the beats are: in a stalled file system nobody beats, and nobody is
dead.
"""

import errno
import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ddlbench.core import beats

PROBE = ".probe"
LATE_S = 5.0  # a write that takes longer is a stall
ANSWERS = (errno.ENOSPC, errno.EDQUOT)  # a full file system is one that works


class Probe(threading.Thread):
    """Writes a few bytes into a folder, again and again, and counts the seconds in which that worked: `good_s`.

    A thread of its own, because a stalled file system holds whoever writes, and a supervisor must still hear its
    launcher end and its signals.
    """

    def __init__(self, folder: Path, every_s: float) -> None:
        super().__init__(daemon=True)
        self.path, self.every_s = folder / PROBE, every_s
        self.good_s = 0.0
        self.ended = threading.Event()
        self.said = False
        self.began: float | None = None  # the write that is under way

    def run(self) -> None:
        last = time.monotonic()
        while not self.ended.wait(self.every_s):
            began = self.began = time.monotonic()
            works = self._write()
            now, self.began = time.monotonic(), None
            if works and now - began < LATE_S:
                self.good_s += min(now - last, 2 * self.every_s)  # we may have been stopped ourselves
            last = now

    def _write(self) -> bool:
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                os.write(file, b"1")
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:  # ESTALE, EIO: it may come back
            return error.errno in ANSWERS
        return True

    def tell(self) -> None:
        """Say once that the file system stalls, and once that it goes on."""
        began = self.began
        stalls = began is not None and time.monotonic() - began > LATE_S
        if stalls != self.said:
            now = "does not answer; waiting for it" if stalls else "answers again"
            print(f"the file system of {self.path.parent} {now}", file=sys.stderr, flush=True)
            self.said = stalls


class RankMonitor:
    """What is known of the ranks so far. `ranks`: what each said of itself, by number; `silent`: how one stopped
    answering."""

    def __init__(self, folder: Path, probe: Probe, silent_s: float, nodes: int) -> None:
        self.folder, self.probe = folder, probe
        self.silent_s, self.beat_s = beats.node_silent_s(silent_s, nodes), beats.node_beat_s(nodes)
        self.ranks: dict[int, dict[str, Any]] = {}
        self.silent: dict[int, str] = {}
        self.standstill = beats.Standstill()  # of nodes' first ranks, by the probe's clock
        self.read: dict[int, float] = {}  # when its beat was read

    def listen(self) -> None:
        """Look at what is new. Raises nothing: what cannot be read now may be there the next time."""
        with suppress(OSError):
            for path in self.folder.iterdir():
                kind, _, rest = path.name.partition("-")
                if kind in ("rank", beats.SILENT) and rest.endswith(".json"):
                    with suppress(OSError, ValueError, KeyError):
                        self._note(kind, int(rest.removesuffix(".json")), path)
        now = time.monotonic()
        for rank in [rank for rank, who in self.ranks.items() if who.get("local_rank") == 0]:
            if now - self.read.get(rank, -self.beat_s) >= 0.9 * self.beat_s:
                self.read[rank] = now
                with suppress(OSError):
                    number = beats.read_beat(self.folder / f"beat-{rank}")
                    if self.standstill.seconds(rank, number, self.probe.good_s) > self.silent_s:
                        self.silent[rank] = f"did not answer for {self.silent_s:.0f} s"
        self.probe.tell()

    def _note(self, kind: str, rank: int, path: Path) -> None:
        if kind == "rank" and rank not in self.ranks:
            self.ranks[rank] = json.loads(path.read_text(encoding="utf-8"))
        elif kind != "rank" and rank not in self.silent:
            self.silent[rank] = json.loads(path.read_text(encoding="utf-8"))["why"]
