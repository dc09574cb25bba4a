"""A small disk, which only root may mount, and a full one."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import shared

LINGER_S = 20  # processes that are about to end may still be in it


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """An empty file system of this size (`400k`) at `folder` until the end; skips the test where that cannot be."""
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
