"""Snakemake 9: SIGTERM while jobs are chosen or noted as finished, and it waits for ever without a
word.

The handler takes the scheduler's lock, which the thread that it interrupts may hold.

Upstream (snakemake/snakemake): `JobScheduler.exit_gracefully` could set the name without the lock,
and release the semaphore from another thread (docs/upstream.md).
"""

import threading
from typing import Any

from ddlbench.patches import only_for, private

MINE = ("snakemake", ("9",), "snakemake_sigterm")


def apply() -> None:
    """Make Snakemake's handler of SIGTERM take no lock. Raises ReleaseError."""
    from snakemake.scheduling.job_scheduler import JobScheduler

    only_for(*MINE)
    private(JobScheduler, "exit_gracefully", *MINE)

    def exit_gracefully(self: Any, *_: Any) -> None:
        self._user_kill = "graceful"
        # A semaphore has a lock, too.
        threading.Thread(target=self._open_jobs.release, daemon=True).start()

    JobScheduler.exit_gracefully = exit_gracefully
