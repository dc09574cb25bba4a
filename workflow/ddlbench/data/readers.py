"""Who reads a prepared form right now: `prepare` does not replace it under them.

A reader leaves a mark beside the form, a small file in `.<form>.readers/`, and touches it every minute. Readers and
`prepare` may be on different nodes and share nothing but files, so a mark counts while it is young: a reader that was
killed is forgotten after STALE_S, on the same machine at once.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from ddlbench.core.files import printable, write_json

BEAT_S = 60.0
STALE_S = 600.0


@contextmanager
def reading(folder: Path | None, who: str) -> Iterator[None]:
    """Keep a mark while the block reads the form in `folder` (None: nothing is read); `who` is for people, a run's id.

    Without a word if the mark cannot be written: who may not write beside a form is not protected.
    """
    if folder is None:
        yield
        return
    mark = marks(folder) / f"{uuid.uuid4().hex}.json"
    born = psutil.Process().create_time()  # tells this process from a later one with its number
    about = {"who": who, "host": socket.gethostname(), "pid": os.getpid(), "born": born}
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_S):
            _touch(mark, about)

    _touch(mark, about)
    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        with suppress(OSError):
            mark.unlink()


def reader(folder: Path, now: float) -> str | None:
    """A reader of the form in words, or None if there is none; removes the marks of those that have ended.

    `now` is the file system's time, which can be another than this machine's [s].
    """
    for mark in sorted(marks(folder).glob("*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            age, about = now - mark.stat().st_mtime, json.loads(mark.read_bytes())
            who = f"{about['who']} (process {about['pid']} on {about['host']}, seen {max(0, age):.0f} s ago)"
            if age < STALE_S and not _is_gone(about):
                return printable(f"{who}; its mark is {mark}")
            mark.unlink()  # it has all that a mark has: it is one
    return None


def marks(folder: Path) -> Path:
    """The folder of marks that belongs to a form's folder. They lie beside the real one, however it was named."""
    real = Path(os.path.realpath(folder))
    return real.with_name(f".{real.name}.readers")


def _touch(mark: Path, about: dict[str, Any]) -> None:
    with suppress(OSError):
        if not mark.parent.exists():
            mark.parent.mkdir()
            mark.parent.chmod(mark.parent.parent.stat().st_mode & 0o7777)  # whoever may write there may leave a mark
        try:
            os.utime(mark)
        except FileNotFoundError:
            write_json(mark, about)


def _is_gone(about: dict[str, Any]) -> bool:
    """Whether that process was on this machine and has ended. Of another machine nobody can tell."""
    if about["host"] != socket.gethostname():
        return False
    try:
        return bool(psutil.Process(about["pid"]).create_time() != about["born"])
    except psutil.NoSuchProcess:
        return True
