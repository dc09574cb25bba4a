"""The crew of processes that `prepare` and `verify` hand their work to, and what is printed of it."""

import errno
import signal
import time

import pytest
from ddlbench.data import crew, progress


def test_it_ends_though_the_process_that_made_it_catches_sigterm() -> None:
    """The crew inherits what the process does when it hears SIGTERM, and would only note that it heard it."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with crew.Crew(2) as made:
            assert sorted(answer for _, answer in made.map(abs, [-1, -2, -3])) == [1, 2, 3]
            began = time.monotonic()
        assert time.monotonic() - began < crew.GRACE_S
        assert [process.exitcode for process in made.processes] == [-signal.SIGTERM] * 2
    finally:
        signal.signal(signal.SIGTERM, before)


def test_each_count_of_parts_is_printed_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the last part takes longer than the time between two lines."""
    monkeypatch.setattr(progress, "EVERY_S", -1)
    said = progress.Progress("mnist5k raw", "class folders", 2, 0)
    said.add(1000)
    said.add(1000)
    said.end()
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == [
        "mnist5k raw: 1 of 2 class folders",
        "mnist5k raw: 2 of 2 class folders",
    ]


def test_no_room_for_locks_is_said_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(crew, "ProcessPoolExecutor", full)
    with pytest.raises(crew.CrewError, match="/dev/shm: No space left"):
        crew.Crew(2)
