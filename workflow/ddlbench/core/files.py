"""Files that are whole or not there: written aside under a hidden name, then renamed. Every room
may use this.
"""

import csv
import errno
import hashlib
import json
import math
import os
import re
import socket
import stat
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

FORMULA = re.compile(r"'*[=+\-@\t\r].", re.DOTALL)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
MOST_TEXT = 200  # characters of a name that somebody else wrote
# A call that this file system does not know.
CANNOT = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
LONGEST_CELL = 1 << 28  # letters of a cell of a csv file: a finding may name thousands of runs
MOST_BYTES = 1 << 30  # of a file that is read at once: a picture, a list, an index


def opened(path: str | Path, most_bytes: float = math.inf) -> BufferedReader:
    """Open a regular file for reading.

    Raises OSError if it is something else, or larger: reading a device or a pipe may never end, nor
    may a file that is mostly holes.
    """
    descriptor = os.open(
        path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    )  # a pipe would wait for its writer
    about = os.fstat(descriptor)
    if stat.S_ISREG(about.st_mode) and about.st_size <= most_bytes:
        return open(descriptor, "rb")  # noqa: PTH123
    os.close(descriptor)
    what = (
        f"is larger than {most_bytes:.0f} bytes"
        if stat.S_ISREG(about.st_mode)
        else "is not a regular file"
    )
    raise OSError(errno.EINVAL, what, str(path))


def opened_text(path: str | Path, most_bytes: float = MOST_BYTES) -> TextIOWrapper:
    """Open a regular file as UTF-8 text; bytes that are not UTF-8 are replaced.

    Raises OSError as `opened` does.
    """
    return TextIOWrapper(opened(path, most_bytes), encoding="utf-8", errors="replace")


def read_bytes(path: str | Path) -> bytes:
    """Read all of a regular file. Raises OSError, also where it is larger than MOST_BYTES."""
    with opened(path, MOST_BYTES) as file:
        return file.read()


def hidden_name(name: str) -> str:
    """Return the temporary name under which this process writes. `living.remove_left` recognises
    the writer by it.
    """
    return f"{hidden_host()}{os.getpid()}-{name}"


def hidden_host() -> str:
    """Return how such names begin on this host."""
    return f".{socket.gethostname()}-"


def as_text(value: Any) -> Any:
    """Return a value as a cell of a csv file.

    What a spreadsheet would take for a formula gets an apostrophe before it, which marks it as
    text; names in others' logs may be such. Numbers stay as they are.
    """
    return (
        f"'{value}"
        if isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value)
        else value
    )


def from_text(value: Any) -> Any:
    """Return what `as_text` was given."""
    return (
        value[1:]
        if isinstance(value, str) and value[:1] == "'" and as_text(value[1:]) == value
        else value
    )


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read the rows of a csv file, as text by column: pandas takes longer to import than a plan to
    make. Raises OSError.
    """
    csv.field_size_limit(LONGEST_CELL)
    with path.open(encoding="utf-8", newline="") as lines:
        return [
            {name: from_text(value) for name, value in row.items()} for row in csv.DictReader(lines)
        ]


def write_csv(path: Path, rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Replace a csv file by these rows, with these columns."""
    with aside(path) as hidden, hidden.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, names, lineterminator="\n")
        table.writeheader()
        table.writerows({name: as_text(value) for name, value in row.items()} for row in rows)


@contextmanager
def aside(path: Path, hidden: Path | None = None, *, through: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path` to write to. It is renamed to `path` if the block ends
    without an error, else removed.

    `hidden` replaces this process's temporary name. With `through`, the file is forced to the disk
    before the renaming: it is complete after a power failure too. Raises what the block raises;
    `path` then stays unchanged.
    """
    hidden = hidden or path.with_name(hidden_name(path.name))
    hidden.unlink(
        missing_ok=True
    )  # left by a kill; or a link, through which another file would be overwritten
    try:
        yield hidden
        if through:
            sync(hidden)
        hidden.replace(path)
    except BaseException as error:
        hidden.unlink(missing_ok=True)
        if isinstance(error, OSError):  # the error of a full disk does not name the file
            error.filename = error.filename or str(path)
        raise


def force(file: int) -> None:
    """Force an open file to the disk.

    A file system that cannot do so is believed to write by itself. Raises OSError.
    """
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in CANNOT:
            raise


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk.

    Raises OSError for a file only. Some file systems cannot force folders, and report this in
    several ways, although the contents are safe. That is reported once.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        force(file)
    except OSError as error:
        if not stat.S_ISDIR(os.fstat(file).st_mode):
            raise
        _say_once(
            f"{path}: the names in this folder cannot be forced to the disk ({error.strerror})"
        )
    finally:
        os.close(file)


@cache
def _say_once(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def link_new(complete: Path, path: Path) -> None:
    """Give a file a second name that is not in use yet. Raises FileExistsError, OSError.

    Some file systems have no hard links (exFAT, SMB, some FUSE). There a new file with the same
    text is made, which is empty for a moment.
    """
    try:
        os.link(complete, path)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EMLINK, *CANNOT}:
            raise
        with path.open("xb") as file:
            file.write(complete.read_bytes())
            file.flush()
            force(file.fileno())


def write_text(path: Path, text: str) -> None:
    """Replace a file by this text, in UTF-8."""
    with aside(path) as hidden:
        hidden.write_text(text, encoding="utf-8")


def answer(text: str, log: str | Path) -> None:
    """Print an answer, and keep it in a log if there is room."""
    print(text, flush=True)
    with suppress(OSError):
        write_text(Path(log), f"{text.strip()}\n")


def write_json(path: Path, data: Any) -> None:
    """Replace a file by this value on one line of JSON."""
    write_text(path, json.dumps(data))


@contextmanager
def logged(path: str | Path) -> Iterator[TextIO]:
    """Send what the block prints into a log, and yield the log.

    An error of the block is one line on the terminal, and its traceback is in the log. Raises
    SystemExit then.
    """
    terminal, failed = sys.stderr, None
    try:
        with (
            Path(path).open("w", encoding="utf-8") as log,
            redirect_stdout(log),
            redirect_stderr(log),
        ):
            try:
                yield log
            except Exception as error:
                failed = error
                traceback.print_exc(file=log)
    except OSError as error:  # a full disk: what was printed is written when the log is closed
        failed = failed or error
    if failed:
        print(
            f"{type(failed).__name__}: {printable(failed)} (more in {path})",
            file=terminal,
            flush=True,
        )
        sys.exit(1)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes as hex digits."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cut(text: str, most: int = MOST_TEXT) -> str:
    """Return the text, or its beginning and its length if it is longer: what stands in files of
    others may be of any length.
    """
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def printable(text: object) -> str:
    r"""Return the text on one line, safe for a terminal: line ends, escapes and what is not UTF-8
    are written out: \x1b.
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))
