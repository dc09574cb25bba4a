"""torch 2.13: who is killed while torch compiles an extension leaves a lock, for which all later ones wait for ever.

DeepSpeed compiles at its start, in the middle of a job. A builder keeps its lock open, so a lock that no process has
open is removed before ranks start. Processes of other nodes cannot be seen: on SLURM it must be an hour old, too.
Without a guard: where no lock is left, nothing is removed.

Upstream (pytorch/pytorch): `torch/utils/file_baton.py` waits while the file `lock` exists, and removes it in a
`finally`. With `fcntl.flock` on the open file, the lock would end with its process.
"""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

OLD_S = 3600.0


def remove(variables: Mapping[str, str]) -> None:
    """Remove what killed builders left where processes with these environment variables build, and say so."""
    cache = Path(variables.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    root, age_s = variables.get("TORCH_EXTENSIONS_DIR"), OLD_S if "SLURM_JOB_ID" in variables else 0.0
    there = Path(root).glob("*/lock") if root else cache.glob("torch_extensions/*/*/lock")
    locks = {lock.resolve(): lock for lock in there}
    for process in psutil.process_iter() if locks else ():
        with suppress(psutil.Error):
            for file in process.open_files():
                locks.pop(Path(file.path), None)
    for lock in locks.values():
        with suppress(OSError):
            about = lock.stat()
            if about.st_uid == os.getuid() and time.time() - about.st_mtime >= age_s:
                lock.unlink()
                print(f"{lock}: its builder was killed; removed", flush=True)
