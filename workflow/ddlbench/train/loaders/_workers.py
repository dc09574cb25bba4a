"""Worker processes of loaders and the signals that ask a rank to stop (`notes.STOP_SIGNALS`).

SLURM sends a signal to every process of a step. A rank answers with a checkpoint, for which it
needs its workers a little longer. So they ignore these signals, unless the rank itself sends
SIGTERM to end them. They end with their rank.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ddlbench.core import living, notes


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block the signals in processes that are forked within; this process receives them
    afterwards.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, notes.STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def listen_to_rank(worker: int = 0) -> None:
    """End this forked worker when the rank sends SIGTERM (as torch and multiprocessing do) or
    dies.
    """
    rank = os.getppid()
    # torch's worker would look for it every 5 s only.
    living.die_with_parent()
    if os.getppid() != rank:  # it died before that
        os._exit(1)

    def listen() -> None:
        while True:
            heard = signal.sigwaitinfo(notes.STOP_SIGNALS)
            if (heard.si_signo, heard.si_pid) == (signal.SIGTERM, rank):
                os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
