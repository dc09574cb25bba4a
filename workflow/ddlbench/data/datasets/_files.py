"""Files that data sets lie in: fetched with a checked digest, written whole or not at all, read in
stretches.
"""

import errno
import hashlib
import os
import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path

from ddlbench.core import living, notes
from ddlbench.core.files import aside, read_bytes
from ddlbench.core.formatting import gigabytes
from ddlbench.data.source import BadImage, Entry, SourceError

TO_THE_END = -1
FETCHING = ".fetching-"  # and host and process: the folder of a download that goes on
FORGOTTEN_S = 86400.0  # a download without a living process that is older is dead
MOST_OPEN = 64  # files of a process: systems allow 1024 at least
# Errors that say nothing of the file: the next picture would have them too.
OF_THIS_SYSTEM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE)


def absolute(given: str) -> Path:
    """Return the absolute form of a path that is relative to the working directory or begins with
    ~.

    Symbolic links in it are not resolved.
    """
    return Path(os.path.abspath(Path(given).expanduser()))  # noqa: PTH100 (Path.absolute keeps `..`)


def fetched(url: str, md5: str, folder: Path, setting: str) -> Path:
    """Return the file at `url` with its digest checked. The file stays in `folder`. Print a line if
    it is downloaded.

    `setting` is the config key for a copy to use instead. Raises SourceError.
    """
    import pooch
    import requests

    place = folder / url.rpartition("/")[2]
    hidden = folder / f"{FETCHING}{socket.gethostname()}-{os.getpid()}"
    try:
        if place.is_file() and _md5(place) == md5:
            return place
        _remove_leftovers(folder)
        try:
            print(f"{url}: downloading to {folder}", flush=True)
            pooch.get_logger().setLevel("WARNING")  # it would say the same, with the hidden folder
            Path(pooch.retrieve(url, f"md5:{md5}", fname=place.name, path=hidden)).replace(place)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
    except ValueError as error:
        raise SourceError(
            f"{url}: the download differs from what was published: {one_line(error)}"
        ) from None
    except (requests.RequestException, OSError) as error:
        todo = f"download it where there is a network and name it in {setting}"
        todo = "free disk space, and start again" if notes.cause(error) == notes.DISK_FULL else todo
        raise SourceError(
            f"{url}: cannot be downloaded to {folder}: {one_line(error)}; {todo}"
        ) from None
    return place


def _remove_leftovers(folder: Path) -> None:
    """Remove the files of downloads that were killed.

    Whether a process on another host is alive cannot be known: after a day it counts as dead.
    """
    for path in folder.glob(f"{FETCHING}*"):
        with suppress(OSError):
            host, _, process = path.name.removeprefix(FETCHING).rpartition("-")
            killed = (
                host == socket.gethostname()
                and process.isdigit()
                and living.state(int(process)) is None
            )
            if killed or time.time() - path.stat().st_mtime > FORGOTTEN_S:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _md5(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()


def checked(path: Path, md5: str) -> Path:
    """Return the path if the file has this MD5 digest. Raises SourceError."""
    try:
        digest = _md5(path)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from None
    if digest != md5:
        raise SourceError(
            f"{path}: is not the published file: its MD5 is {digest}, published is {md5}"
        )
    return path


def check_once(path: Path, md5: str, folder: Path) -> None:
    """Compare a large file with its published digest, and note that in `folder`: as long as its
    size and its time of change are those that were noted, it is not read again. Raises SourceError.
    """
    try:
        about = path.stat()
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from None
    note = folder / f"{path.name}.md5"
    line = f"{md5}  {path}  {about.st_size}  {about.st_mtime_ns}\n".encode(errors="surrogateescape")
    if note.is_file() and note.read_bytes() == line:
        return
    print(
        f"{path}: {gigabytes(about.st_size)} are compared with the published MD5, once", flush=True
    )
    checked(path, md5)
    keep(note, line)


def keep(path: Path, data: bytes) -> None:
    """Write these bytes to a file of the cache, unless it holds them already.

    Other processes never see half of it.

    Raises SourceError if it cannot be written (disk full).
    """
    try:
        if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside(path) as hidden:
            hidden.write_bytes(data)
    except OSError as error:
        raise SourceError(f"{path}: cannot be written: {error.strerror or error}") from None


def read_words(path: Path) -> list[str]:
    """Read a list of names, separated by white space.

    Raises SourceError if it cannot be read as text.
    """
    try:
        return path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: cannot be read: {one_line(error)}") from None


def read_stretch(entry: Entry) -> bytes:
    """Return the bytes of an entry. Raises BadImage if they cannot be read or are too few."""
    try:
        if entry.size == TO_THE_END:
            return read_bytes(entry.path)
        data = os.pread(_opened(entry.path), entry.size, entry.offset)
    except OSError as error:
        if error.errno in OF_THIS_SYSTEM:
            raise
        raise BadImage(
            f"{entry.path}: {entry.filename}: cannot be read: {error.strerror}"
        ) from None
    if len(data) < entry.size:
        raise BadImage(
            f"{entry.path}: {entry.filename}: {entry.size} bytes at {entry.offset}, found"
            f" {len(data)}"
        )
    return data


_descriptors: dict[str, int] = {}  # of files that are open, the one used last at the end


def _opened(path: str) -> int:
    """Return a descriptor of the file, which stays open while it is one of the last MOST_OPEN that
    were used.

    Opening one archive 1.28 million times costs a cluster's file system more than the reading.
    pread has no position, so processes may share the descriptor.
    """
    descriptor = _descriptors.pop(path, None)
    if descriptor is None:
        if len(_descriptors) >= MOST_OPEN:
            os.close(_descriptors.pop(next(iter(_descriptors))))
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    _descriptors[path] = descriptor
    return descriptor


def one_line(error: object) -> str:
    """Return the text of a library's error on one line."""
    return " ".join(str(error).split())
