"""A form that somebody reads, or that another user made, is not replaced."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from ddlbench.data import readers
from ddlbench.data.manifest import Manifest
from ddlbench.data.prepare import write_form
from ddlbench.data.source import Entry, Picture
from ddlbench.data.target import TargetError

from tests.conftest import until
from tests.sources import Memory, contents, some
from tests.unit.targets import everything, made, refused
from tests.unit.test_forms_faults import ENVIRONMENT, prepare


@pytest.fixture
def read(tmp_path: Path) -> Path:
    """A form that another process reads."""
    made(tmp_path / "tfrecord")
    return tmp_path / "tfrecord"


READ = """
import sys, time
from pathlib import Path
from ddlbench.data.readers import reading
with reading(Path(sys.argv[1]), "a-run-r1"):
    print("reads", flush=True)
    sys.stdin.read()
"""


def reader(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", READ, str(folder)]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "reads\n"
    return process


def test_a_form_that_is_read_is_not_replaced(read: Path) -> None:
    before = contents(read)
    process = reader(read)
    assert made(read).seed == 1  # is there already
    with pytest.raises(TargetError, match=r"which is read by a-run-r1 \(process \d+ on .*Start again when"):
        made(read, seed=2)
    assert contents(read) == before
    process.communicate("", timeout=20)
    made(read, seed=2)
    assert Manifest.read(read).seed == 2


def test_a_reader_that_was_killed_does_not_block(read: Path) -> None:
    process = reader(read)
    process.kill()
    process.wait()
    made(read, seed=2)
    assert list(readers.marks(read).iterdir()) == []


def test_a_reader_elsewhere_counts_while_its_mark_is_young(read: Path) -> None:
    process = reader(read)
    (mark,) = readers.marks(read).iterdir()
    mark.write_text(json.dumps(json.loads(mark.read_text()) | {"host": "node17"}))
    process.kill()
    process.wait()
    with pytest.raises(TargetError, match="on node17"):
        made(read, seed=2)
    then = time.time() - readers.STALE_S - 1
    os.utime(mark, (then, then))
    made(read, seed=2)


class Late(Memory):
    """A source that is slow enough for a reader to come: it does so with the first picture."""

    came: ClassVar[list[subprocess.Popen[str]]] = []

    def read(self, entry: Entry) -> Picture:
        if not self.came:
            self.came.append(reader(self.described["folder"]))
        return super().read(entry)


def test_a_reader_that_comes_while_the_form_is_made_keeps_the_old_one(read: Path) -> None:
    """The new one is whole by then; the next call puts it in place."""
    before, source = contents(read), some(12, 6)
    late = Late(source.samples, source.classes, described={"folder": str(read)})
    with pytest.raises(TargetError, match="which is read by a-run-r1"):
        write_form(lambda: late, "some", "tfrecord", read)
    assert contents(read) == before
    Late.came[0].communicate("", timeout=20)
    inode = (read.parent / ".tfrecord.partial/train-00000-of-00004").stat().st_ino
    write_form(lambda: late, "some", "tfrecord", read)
    assert (read / "train-00000-of-00004").stat().st_ino == inode


def test_a_mark_stays_young(read: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BEAT_S", 0.02)
    with readers.reading(read, "me"):
        (mark,) = readers.marks(read).iterdir()
        os.utime(mark, (1, 1))
        until(lambda: mark.stat().st_mtime > 1, 20, 0.01)
        mark.unlink()  # by somebody who tidied up
        until(mark.exists, 20, 0.01)
    assert not mark.exists()


def test_files_that_are_no_marks_stay(read: Path) -> None:
    readers.marks(read).mkdir()
    for name, text in (("a.json", "{}"), ("b.json", "not JSON"), ("c.txt", "")):
        path = readers.marks(read) / name
        path.write_text(text)
        os.utime(path, (1, 1))
    made(read, seed=2)
    assert sorted(p.name for p in readers.marks(read).iterdir()) == ["a.json", "b.json", "c.txt"]


# With all loaded before: another user may not be able to read this installation.
NOBODY = """
import os, sys
import multiprocessing.popen_fork, multiprocessing.queues, multiprocessing.synchronize, numpy, PIL.Image
from ddlbench.core import registry
from ddlbench.data import prepare
loaded = [registry.member(room, name) for room in ("datasets", "forms") for name in registry.members(room)]
pillow = prepare.version("pillow")
prepare.version = lambda name: pillow
os.setegid(65534)
os.seteuid(65534)
prepare.main()
"""


def as_nobody(*arguments: object) -> subprocess.CompletedProcess[str]:
    """prepare, as a user who owns nothing."""
    if os.geteuid():
        pytest.skip("only root can be another user")
    command = [sys.executable, "-c", NOBODY, *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that all may write to; pytest's own are closed to others, and it closes them again."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def test_another_users_form_is_used_but_not_replaced(public: Path) -> None:
    folder = public / "tfrecord"
    asked = ("synthetic-imagenet", "tfrecord", folder / "manifest.json", "--source")
    assert prepare(*asked, "train=8,val=2,classes=2").returncode == 0
    done = as_nobody(*asked, "train=8,val=2,classes=2")
    assert (done.returncode, "is there already" in done.stdout) == (0, True), done.stderr
    before = everything(public)
    refused(as_nobody(*asked, "train=8,val=4,classes=2"), "belongs to another user (number 0)")
    assert everything(public) == before


def test_a_place_that_cannot_be_written_to(public: Path) -> None:
    public.chmod(0o755)
    (public / "tfrecord").mkdir()
    refused(as_nobody("synthetic-imagenet", "tfrecord", public / "tfrecord/manifest.json"), "Permission denied")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / ".manifest.json").write_text("{}"),
        lambda folder: (folder / ".manifest.json").write_text('{"versions": {"ddlbench": "1"}}'),
        lambda folder: (folder / ".manifest.json").unlink(),
    ],
)
def test_only_a_manifest_that_can_be_read_says_so(read: Path, spoil: Callable[[Path], object]) -> None:
    spoil(read)
    before = contents(read)
    with pytest.raises(TargetError, match="was not made by ddlbench"):
        made(read, seed=2)
    assert contents(read) == before
