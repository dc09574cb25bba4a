"""Files that are whole or not there: written aside under a hidden name, then renamed. Every room may use this."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def aside(path: Path, hidden: Path | None = None, *, through: bool = False) -> Iterator[Path]:
    """A path beside `path` to write to: renamed to `path` if the block ends well, else removed.

    `hidden` is another name for it than one of this process. With `through` the file is forced to the disk before it
    gets its name, so that it is whole after a power failure too. Raises what the block raises; what lay at `path`
    before is then still there.
    """
    hidden = hidden or path.with_name(f".{os.getpid()}-{path.name}")
    hidden.unlink(missing_ok=True)  # left by a kill; or a link, through which another file would be overwritten
    try:
        yield hidden
        if through:
            with hidden.open("rb") as file:
                os.fsync(file.fileno())
        hidden.replace(path)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Replace a file by this text, in UTF-8."""
    with aside(path) as hidden:
        hidden.write_text(text, encoding="utf-8")


def write_json(path: Path, data: Any) -> None:
    """Replace a file by this value on one line of JSON."""
    write_text(path, json.dumps(data))


def sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def printable(text: object) -> str:
    """The text on one line, safe for a terminal: line ends, escape characters and bytes that are not UTF-8 are written
    out, such as \\x1b."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))
