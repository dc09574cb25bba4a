"""Worker processes of loaders outlive the signals that ask a rank to stop, and end when their rank ends them."""

import multiprocessing
import os
import signal
import time

import psutil
import pytest
from ddlbench.core import notes
from ddlbench.train.loaders import _workers


def work() -> None:
    _workers.listen_to_rank()
    time.sleep(60)


@pytest.fixture
def worker():
    with _workers.signals_blocked():
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
    for _ in range(100):  # one that has not listened yet hears two SIGTERMs as one, the first
        worker.terminate()
        worker.join(0.1)
        if worker.exitcode is not None:
            break
    assert worker.exitcode == 0


def test_workers_end_with_a_rank_that_is_killed():
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def rank() -> None:
        process = multiprocessing.get_context("fork").Process(target=listening, args=(theirs,))
        process.start()
        time.sleep(60)

    def listening(pipe) -> None:
        _workers.listen_to_rank()
        pipe.send(os.getpid())
        time.sleep(60)

    killed = multiprocessing.get_context("fork").Process(target=rank)
    killed.start()
    assert ours.poll(30)
    left = psutil.Process(ours.recv())
    killed.kill()
    killed.join()
    _, alive = psutil.wait_procs([left], timeout=20)
    for process in alive:
        process.kill()
    assert not alive


def test_whoever_forks_hears_them_again():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with _workers.signals_blocked():
        assert set(notes.STOP_SIGNALS) <= signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
