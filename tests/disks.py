"""A small disk, which only root may mount, a full one, and one that is watched."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import shared

LINGER_S = 20  # processes that are about to end may still be in it


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """An empty file system of this size (`400k`) at `folder` until the end; skips the test where
    that cannot be.
    """
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]).returncode:
        pytest.skip("cannot mount a small file system here")
    try:
        yield
    finally:
        deadline = time.monotonic() + LINGER_S * shared()
        while subprocess.run(["umount", folder]).returncode and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not folder.is_mount()


def fill(folder: Path, left: int = 0) -> Path:
    """A file that takes all room of its disk but for so many pages."""
    room, filler = os.statvfs(folder), folder / "filler"
    filler.write_bytes(bytes((room.f_bavail - left) * room.f_frsize))
    return filler


class Watched:
    """What this process forces to the disk from here on, and which files get a name that others
    look for.

    `named` says of each such name whether all that got it was on the disk by then.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.named: dict[str, bool] = {}
        self._sizes: dict[int, int] = {}  # of forced files, by inode
        fsync = os.fsync

        def forcing(file: Any) -> None:
            fsync(file)
            about = os.fstat(file if isinstance(file, int) else file.fileno())
            self._sizes[about.st_ino] = about.st_size

        def naming(rename: Callable[..., None]) -> Callable[..., None]:
            def renaming(source: Path, target: Path) -> None:
                self.named[Path(target).name] = self.has(Path(source))
                rename(source, target)

            return renaming

        monkeypatch.setattr(os, "fsync", forcing)
        for name in ("rename", "replace"):
            monkeypatch.setattr(os, name, naming(getattr(os, name)))

    def has(self, path: Path) -> bool:
        """Whether a file, or all files of a folder, were forced to the disk as they are now."""
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        return bool(files) and all(
            self._sizes.get(file.stat().st_ino) == file.stat().st_size for file in files
        )
