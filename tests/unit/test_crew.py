"""The crew of processes that `prepare` and `verify` hand their work to."""

from __future__ import annotations

import signal
import time

from ddlbench.data import crew


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
