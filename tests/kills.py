"""Work in a process that is killed (SIGKILL) before any of its changes of files, one after the
other.
"""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddlbench.core.rank_log import RankLog

CHANGES = [
    *((os, name) for name in ("fsync", "unlink", "rename", "replace", "rmdir", "mkdir")),
    *((Path, name) for name in ("replace", "rename", "write_bytes", "write_text")),
    *((shutil, "rmtree"), (RankLog, "event")),
]


def killed_at(call: int, work: Callable[[], Any]) -> bool:
    """Do the work in a process that is killed before its `call`th change; whether it came to
    that.
    """
    pid = os.fork()
    if not pid:
        count = 0

        def counted(do: Callable[..., Any]) -> Callable[..., Any]:
            def counting(*args: Any, **named: Any) -> Any:
                nonlocal count
                count += 1
                if count == call:
                    os.kill(os.getpid(), signal.SIGKILL)
                return do(*args, **named)

            return counting

        for owner, name in CHANGES:
            setattr(owner, name, counted(getattr(owner, name)))
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
