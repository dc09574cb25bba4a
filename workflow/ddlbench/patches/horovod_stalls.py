"""Horovod 0.28, in which a rank waits for ever for one that does not come.

Its threads go on talking while a rank's own waits for a gradient. Without a guard: a release that
gives up by itself does so before, or after, and the run ends either way.

Upstream (horovod/horovod, common/stall_inspector.cc): with HOROVOD_STALL_SHUTDOWN_TIME_SECONDS at
34 s, a rank that is stopped (SIGSTOP) within a collective keeps the others in `synchronize()`;
nothing ended in six minutes. The inspector sees requests that some ranks lack, not a coordinator
that no longer answers: a deadline per collective would patch it.
"""

import os
import sys
import time
from pathlib import Path
from threading import Thread

from ddlbench.core import notes


class Waiting:
    """A block within which this rank waits for the others.

    `since` is when it began to; None while it does not wait.
    """

    since: float | None = None

    def __enter__(self) -> None:
        Waiting.since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        Waiting.since = None


def watch(rank: int, timeout_s: float) -> None:
    """End this process, from here on, when a wait reaches the timeout. The note has the reason."""
    Thread(target=_give_up, args=(rank, timeout_s), daemon=True).start()


def _give_up(rank: int, timeout_s: float) -> None:
    while Waiting.since is None or time.monotonic() - Waiting.since < timeout_s:
        time.sleep(1)
    error = TimeoutError(
        f"timed out waiting {timeout_s:.0f} s for other ranks in a collective of Horovod"
    )
    print(error, file=sys.stderr, flush=True)
    if "DDLBENCH_FOLDER" in os.environ:
        notes.report(Path(os.environ["DDLBENCH_FOLDER"]), rank, error)
    os._exit(1)
