"""Files that are whole or not there, and how much of one lies in memory; the processes that write
and verify them.
"""

import errno
import os
import re
import signal
from functools import partial
from pathlib import Path

import pytest
from ddlbench.core import files, living
from ddlbench.data import crew, prepare
from ddlbench.run import facts

from tests.builders.plans import run_spec
from tests.facts import missing, refuses
from tests.kills import killed_at


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    files.write_text(path, "before")
    with pytest.raises(ZeroDivisionError), files.aside(path) as hidden:
        hidden.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "tables"):
        folder.mkdir(exist_ok=True)
        assert killed_at(3, partial(files.write_text, folder / "a.csv", "half"))
    with files.aside(tmp_path / "b.png") as hidden:
        hidden.touch()
        assert hidden.suffix == ".png"  # by which writers such as matplotlib choose their format
        assert len(list(tmp_path.rglob(".*"))) == 3
        living.remove_left(tmp_path)
    assert {*tmp_path.rglob("*")} == {tmp_path / "tables", tmp_path / "b.png"}


def test_an_error_is_a_line_on_the_terminal_and_a_traceback_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "figure.log"
    with pytest.raises(SystemExit) as ended, files.logged(log):
        print("drawing")
        raise OSError(28, "No space left\non device")
    assert ended.value.code == 1
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    assert missing(line, "OSError: ", "[Errno 28]", r"left\non", log) == []
    assert log.read_text().startswith("drawing\nTraceback ")


def test_an_error_is_told_where_the_disk_of_the_log_is_full(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit), files.logged("/dev/full"):
        raise ValueError("wrong")
    assert missing(capsys.readouterr().err, "ValueError: wrong", "/dev/full") == []
    with pytest.raises(SystemExit), files.logged("/dev/full"):
        print("all is well")
    assert missing(capsys.readouterr().err, "OSError: [Errno 28]", "/dev/full") == []


SIZE = 40 * 4096


def form(folder: Path, files: int = 3) -> Path:
    (folder / "train/cats").mkdir(parents=True)
    (folder / "manifest.json").write_text('{"root": null}')
    for number in range(files):
        with (folder / f"train/cats/{number}.png").open("wb") as file:
            file.write(os.urandom(SIZE))
            file.flush()
            os.fsync(file.fileno())  # a page that is not yet on disk cannot be dropped
    return folder


def drop(file: Path) -> None:
    with file.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_what_was_just_written_is_in_memory_and_what_was_dropped_is_not(tmp_path: Path) -> None:
    data = form(tmp_path / "data", 2)
    (tmp_path / "manifest.json").write_text(
        f'{{"root": "{data}"}}'
    )  # of a tree that is used in place
    assert facts.cached_share(data) == facts.cached_share(tmp_path) == 1.0
    drop(data / "train/cats/0.png")
    share = facts.cached_share(data)
    if share == 1.0:
        pytest.skip("this file system drops nothing when it is asked to")
    assert share == pytest.approx(0.5)


@pytest.mark.parametrize("text", ["", "[]", '{"root": "/not/there"}', '{"root": 3}'])
def test_nothing_that_cannot_be_read_stops_a_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert facts.cached_share(tmp_path) is None
    assert facts.cached_share(tmp_path / "missing") is None
    assert facts.cached_share(None) is None


def test_a_large_tree_is_only_sampled(tmp_path: Path) -> None:
    for folder in range(20):
        (tmp_path / f"{folder:02}").mkdir()
        for file in range(20):
            (tmp_path / f"{folder:02}/{file:02}").touch()
    sample = list(facts._sample(tmp_path, 10))
    assert len(sample) == 10
    assert len({file.parent for file in sample}) == 10
    assert list(facts._sample(tmp_path / "00", 20)) == sorted(
        (tmp_path / "00").iterdir()
    )  # of a small one, all


def test_a_record_says_driver_gpu_and_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = tmp_path / "nvidia"
    (driver / "gpus/0000:03:00.0").mkdir(parents=True)
    (driver / "gpus/0000:03:00.0/information").write_text(
        "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 67\n"
    )
    (driver / "version").write_text("NVRM version: NVIDIA  570.86.15  Release\nGCC\n")
    monkeypatch.setattr(facts, "NVIDIA", driver)
    said = facts.facts(run_spec(), ["python"], None, form(tmp_path / "data"))
    assert said["gpu"] == "NVIDIA A100-SXM4-40GB"
    assert said["driver"] == "NVIDIA 570.86.15 Release"
    assert re.fullmatch("[0-9a-f]{64}", said["data_sha256"])
    assert said["data_cached_share"] == 1.0
    monkeypatch.setattr(facts, "NVIDIA", tmp_path / "none")
    said = facts.facts(run_spec(), ["python"])
    assert (said["gpu"], said["driver"], said["data_sha256"], said["data_cached_share"]) == (
        None,
        None,
        None,
        None,
    )


def test_it_ends_though_the_process_that_made_it_catches_sigterm() -> None:
    """The crew inherits what the process does when it hears SIGTERM, and would only note that it
    heard it.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with crew.Crew(2) as made:
            assert sorted(answer for _, answer in made.map(abs, [-1, -2, -3])) == [1, 2, 3]
        with crew.Crew(2) as idle:  # it is ended while it begins
            pass
        assert {p.exitcode for p in (*made.processes, *idle.processes)} == {-signal.SIGKILL}
    finally:
        signal.signal(signal.SIGTERM, before)


def test_each_count_of_parts_is_printed_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the last part takes longer than the time between two lines."""
    monkeypatch.setattr(prepare, "EVERY_S", -1)
    said = prepare.Progress("mnist5k raw", "class folders", 2)
    said.add(1000)
    said.add(1000)
    said.end()
    lines = [line.split(",")[0] for line in capsys.readouterr().out.splitlines()]
    assert [
        missing(line, "mnist5k raw", f"{n} of 2", "class folders")
        for n, line in enumerate(lines, 1)
    ] == [[], []]


def test_no_room_for_locks_is_said_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(crew, "ProcessPoolExecutor", full)
    with refuses(crew.CrewError, "/dev/shm", "No space left"):
        crew.Crew(2)
