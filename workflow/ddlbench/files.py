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
def aside(path: Path) -> Iterator[Path]:
    """A hidden path beside `path` to write to: renamed to `path` if the block ends well, else removed..

    Raises what the block raises; what lay at `path` before is then still there.
    """
    hidden = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield hidden
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
