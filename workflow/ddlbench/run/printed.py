"""What a user's program prints: each line stamped as it is read, those kept that its reading wants.

`Printed` stands between the program and the log of the job: whatever processes of the job write
comes through it.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from ddlbench.core.program import HIDDEN
from ddlbench.run.readings import Line

MOST_LOGGED = (
    1 << 26
)  # bytes of the job's log; what comes after is read and not kept, but for the last lines
MOST_LINE = 1 << 16  # bytes; a longer one is cut
MOST_KEPT = 5_000_000  # lines
MOST_BYTES = 1 << 26  # of lines that no pattern matches
MOST_OTHER = 1 << 12  # bytes of such a line
LAST = 50
LABEL = re.compile(r" *(\d+)(?:@(\d+\.\d+))?: ?")
ENDS = re.compile(rb"[\r\n\b]+")  # of lines; bars go back in place of ending theirs
DRAIN_S = 2.0


class Printed:
    """A capture of standard output and error of this process and its children while the block runs.

    Each line that is kept is also written to the file `aside` at once: if this process is killed,
    no line is lost. All are kept, as far as MOST_BYTES allows: another pattern may be tried on them
    later. Beyond that, only those that match a pattern are kept. Lines that are `labelled` begin
    with their rank, as `srun --label` writes it: `1: `; one that came earlier than it ended also
    says when: `1@1700000000.250: `. `logs`: the job's log gets all.

    `lines` are those that are kept, `last` the last ones of all; no line and no log has one of the
    `secrets`. After `quiet_s` without a line, and with `moves` unchanged, this process is told to
    end the job (SIGINT), and `quiet` is True.
    """

    def __init__(
        self,
        patterns: Sequence[re.Pattern[str]],
        quiet_s: float,
        moves: Callable[[], object],
        labelled: bool = False,
        aside: Path | None = None,
        logs: bool = True,
        secrets: Sequence[str] = (),
    ) -> None:
        self.secrets = [secret.encode() for secret in secrets]
        self._held = b""  # of the log's last line, which may end within a secret
        self.aside, self.logs = aside, logs
        self.patterns, self.quiet_s, self.moves, self.labelled = patterns, quiet_s, moves, labelled
        self.lines: list[Line] = []
        self.last: deque[str] = deque(maxlen=LAST)
        self.quiet = False
        self._ended = threading.Event()
        self._logged = self._bytes = 0
        self._file: IO[str] | None = None

    def __enter__(self) -> Printed:
        sys.stdout.flush()
        sys.stderr.flush()
        self._kept = os.dup(1), os.dup(2)
        self._read, write = os.pipe()
        for number in (1, 2):
            os.dup2(write, number)
        os.close(write)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in zip((1, 2), self._kept, strict=True):
            os.dup2(kept, number)
        self._ended.set()  # a process that escaped may still hold the other end
        self._thread.join(DRAIN_S + 5)
        for kept in self._kept:
            os.close(kept)
        os.close(self._read)

    def _listen(self) -> None:
        rest, rest_s, heard, moved, ended_s = b"", 0.0, time.monotonic(), None, None
        while ended_s is None or time.monotonic() - ended_s < DRAIN_S:
            if self._ended.is_set() and ended_s is None:
                ended_s = time.monotonic()
            if not select.select([self._read], [], [], 0.2 if ended_s else 1.0)[0]:
                if ended_s:
                    break
                if (now := self.moves()) != moved:
                    heard, moved = time.monotonic(), now
                if time.monotonic() - heard > self.quiet_s and not self.quiet:
                    self.quiet = True
                    os.kill(os.getpid(), signal.SIGINT)
                continue
            piece = os.read(self._read, 1 << 16)
            at_s, heard = time.time(), time.monotonic()
            if not piece:
                break
            self._log(self._without(piece))
            # A bar's line was whole when it came, though only its next update ends it.
            line_s = rest_s if ENDS.match(piece) else at_s
            *lines, rest = ENDS.split(rest + piece)
            rest, rest_s = rest[-MOST_LINE:], at_s
            for line in lines:
                self._take(line_s, line)
                line_s = at_s
            with suppress(OSError, ValueError):
                if self._file is not None:
                    self._file.flush()
        self._take(rest_s, rest)
        with suppress(OSError, ValueError):
            if self._file is not None:
                self._file.close()
        if self._held:
            self._log(self._hide(self._held))

    def _without(self, piece: bytes) -> bytes:
        """Return the text that may be logged by now: complete lines, without secrets."""
        if not self.secrets:
            return piece
        whole, end, self._held = (self._held + piece).rpartition(b"\n")
        if len(self._held) > MOST_LINE:
            whole, end, self._held = whole + end, self._held, b""
        return self._hide(whole + end)

    def _hide(self, text: bytes) -> bytes:
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN.encode())
        return text

    def _take(self, at_s: float, line: bytes) -> None:
        text, rank = self._hide(line[:MOST_LINE]).decode(errors="replace"), 0
        if self.labelled and (label := LABEL.match(text)):
            text, rank = text[label.end() :], int(label[1])
            at_s = float(label[2] or at_s)
        if text.strip():
            self.last.append(text)
            if len(self.lines) < MOST_KEPT and (text := self._worth_keeping(text)):
                self.lines.append(Line(at_s, text, rank))
                with suppress(OSError, ValueError):
                    if self._file is None and self.aside is not None:
                        self._file = self.aside.open("a", encoding="utf-8")
                    if self._file is not None:
                        self._file.write(json.dumps(self.lines[-1]) + "\n")

    def _worth_keeping(self, text: str) -> str:
        """Return the line in the form in which it is kept; empty if the limit is reached."""
        if any(pattern.search(text) for pattern in self.patterns):
            return text
        text = text[:MOST_OTHER]
        if self._bytes + len(text) > MOST_BYTES:
            return ""
        self._bytes += len(text)
        return text

    def _log(self, piece: bytes) -> None:
        """Pass it on to the job's log while there is room. A full disk must not end the program."""
        if self.logs and self._logged < MOST_LOGGED:
            self._logged += len(piece)
            try:
                os.write(self._kept[0], piece)
                if self._logged >= MOST_LOGGED:
                    os.write(
                        self._kept[0],
                        b"\n(the program prints more than 64 MiB: the rest is not kept here)\n",
                    )
            except OSError:
                pass
