"""The end of a rank's process, whatever it did: a failure leaves its reason for the supervisor
(`run/watch.py`).
"""

import atexit
import ctypes
import faulthandler
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from ddlbench.core import heartbeats, notes
from ddlbench.train import place
from ddlbench.train.guard import Stopped

UNDER_NSYS = "DDLBENCH_UNDER_NSYS"


def run(folder: Path, work: Callable[[], None]) -> None:
    """Do the work of this rank, and end the process.

    Its exit code is 0, `notes.STOPPED` if the work raised Stopped, 1 if it raised anything else.
    """
    # a crash in compiled code (SIGSEGV, SIGABRT) leaves in the log where Python was
    faulthandler.enable()
    rank = place.rank_number()
    try:
        work()
        heartbeats.end(folder, rank, well=True)
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        code = notes.STOPPED
    except BaseException as error:
        traceback.print_exc()
        notes.report(folder, rank, error)
        code = 1
    else:
        _leave_at_once()
        return
    heartbeats.end(folder, rank)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # not sys.exit: a framework's own threads would wait for ranks that are gone


def _leave_at_once() -> None:
    """End this process with exit code 0, after the functions that `atexit` knows.

    Python would then take all modules of PyTorch apart, which takes a second. The next run waits
    for that.
    """
    if UNDER_NSYS in os.environ:  # nsys writes what it recorded when a process ends in full
        return
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)  # what compiled code has printed
    os._exit(0)
