"""What many tests need is made once, whether it succeeds or not."""

from pathlib import Path

import pytest

from tests.conftest import Once


def test_it_is_made_once(once: Once) -> None:
    calls = []
    folders = {once("made", lambda folder: calls.append(folder)) for _ in range(2)}
    assert list(folders) == calls
    assert calls[0].is_dir()


def test_it_fails_once(once: Once) -> None:
    calls = []

    def fail(folder: Path) -> None:
        calls.append(folder)
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        once("fails", fail)
    with pytest.raises(pytest.fail.Exception, match="fails could not be made, as another test said: OSError: no room"):
        once("fails", fail)
    assert len(calls) == 1
