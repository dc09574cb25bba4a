"""The end of a rank's process, whatever it did: a failure leaves its reason for the supervisor
(`run/watch.py`).
"""

import faulthandler
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from ddlbench.core import heartbeats, notes
from ddlbench.train import place
from ddlbench.train.guard import Stopped


def run(folder: Path, work: Callable[[], None]) -> None:
    """Do the work of this rank. If that fails the process ends: with `notes.STOPPED` if it raised
    Stopped, else 1.
    """
    # a crash in compiled code (SIGSEGV, SIGABRT) leaves in the log where Python was
    faulthandler.enable()
    rank = place.number()
    try:
        work()
        heartbeats.end(folder, rank, well=True)
        return
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        code = notes.STOPPED
    except BaseException as error:
        traceback.print_exc()
        notes.report(folder, rank, error)
        code = 1
    heartbeats.end(folder, rank)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # not sys.exit: a framework's own threads would wait for ranks that are gone
