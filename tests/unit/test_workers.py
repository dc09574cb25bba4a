"""Worker processes of loaders outlive the signals that ask a rank to stop, and end when their rank ends them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time

import pytest
from ddlbench import notes
from ddlbench.loaders import _workers


def work() -> None:
    _workers.listen_to_rank()
    time.sleep(60)


@pytest.fixture
def worker():
    with _workers.forked_deaf():
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
    yield process
    process.kill()
    process.join()


@pytest.mark.parametrize("number", notes.STOP_SIGNALS)
def test_a_signal_from_elsewhere_is_ignored_from_the_first_moment(worker, number):
    os.system(f"kill -{int(number)} {worker.pid}")  # from another process than the one that forked it
    worker.join(0.3)
    assert worker.is_alive()
    worker.terminate()
    worker.join(10)
    assert worker.exitcode == 0


def test_whoever_forks_hears_them_again():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with _workers.forked_deaf():
        assert set(notes.STOP_SIGNALS) <= signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
