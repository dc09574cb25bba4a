"""Files that are whole or not there."""

import hashlib
from pathlib import Path

import pytest
from ddlbench.core import files


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    files.write_text(path, "before")
    with pytest.raises(ZeroDivisionError), files.aside(path) as hidden:
        hidden.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_an_aside_keeps_the_suffix(tmp_path: Path) -> None:
    """Writers such as matplotlib choose their format by it."""
    with files.aside(tmp_path / "a.png") as hidden:
        assert hidden.suffix == ".png"
        hidden.touch()
    assert (tmp_path / "a.png").exists()


def test_digest(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert files.sha256(tmp_path / "a") == hashlib.sha256(b"abc").hexdigest()


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
    assert told.err == f"OSError: [Errno 28] No space left\\non device (more in {log})\n"
    assert log.read_text().startswith("drawing\nTraceback ")


def test_an_error_is_told_where_the_disk_of_the_log_is_full(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((SystemExit, OSError)), files.logged("/dev/full"):
        raise ValueError("wrong")
    assert capsys.readouterr().err == "ValueError: wrong (more in /dev/full)\n"
