"""Who reads a prepared form right now: `prepare` does not replace it under them.

A reader leaves a mark beside the form, a small file in `.<form>.readers/`, and touches it every minute. Readers and
`prepare` may be on different nodes and share nothing but files, so a mark counts while it is young: a reader that was
killed is forgotten after STALE_S, on the same machine at once.
"""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ddlbench.core import living
from ddlbench.core.files import printable

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
    end = living.mark(marks(folder) / f"{uuid.uuid4().hex}.json", BEAT_S, who=who)
    try:
        yield
    finally:
        end()


def reader(folder: Path, now: float) -> str | None:
    """A reader of the form in words, or None if there is none; removes the marks of those that have ended.

    `now` is the file system's time, which can be another than this machine's [s].
    """
    for mark in sorted(marks(folder).glob("*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            age, about = now - mark.stat().st_mtime, json.loads(mark.read_bytes())
            who = f"{about['who']} (process {about['pid']} on {about['host']}, seen {max(0, age):.0f} s ago)"
            process = living.read(mark)
            if age < STALE_S and (process is None or living.lives(process) is not False):
                return printable(f"{who}; its mark is {mark}")
            mark.unlink()  # it has all that a mark has: it is one
    return None


def marks(folder: Path) -> Path:
    """The folder of marks that belongs to a form's folder. They lie beside the real one, however it was named."""
    real = Path(os.path.realpath(folder))
    return real.with_name(f".{real.name}.readers")
