"""Files that are whole or not there."""

import hashlib
from pathlib import Path

import pytest
from ddlbench import files


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
