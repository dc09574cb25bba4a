"""A mend for Snakemake's SLURM plugin 2.8.0: jobs that somebody cancelled have ended.

sacct says `CANCELLED by <uid>`; the plugin compares with `CANCELLED` and waits for ever, without a word. It also takes
every PREEMPTED job for one that is queued again, which is not so in partitions with `PreemptMode=CANCEL`. A plugin with
the mend would keep the first word of what sacct says, and ask squeue whether a pre-empted job is still in the queue.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from ddlbench.run import hold

PLUGIN = "snakemake_executor_plugin_slurm"


def mend_plugin() -> None:
    """Make the plugin see cancelled jobs, if it is installed. Nothing happens when it is called again."""
    try:
        plugin: Any = import_module(PLUGIN)
    except ModuleNotFoundError:
        return
    query = plugin.query_job_status
    if getattr(query, "mended", False):
        return

    async def query_job_status(command: str, logger: Any) -> tuple[dict[str, str] | None, float | None]:
        """The plugin's: (state by job id, seconds that it took), or (None, None) if SLURM does not answer."""
        states, seconds = await query(command, logger)
        return (None if states is None else ended_states(states)), seconds

    query_job_status.mended = True  # type: ignore[attr-defined]
    plugin.query_job_status = query_job_status


def ended_states(states: Mapping[str, str]) -> dict[str, str]:
    """States by job id as the plugin knows them: `CANCELLED by 0`, and a pre-empted job that has left the queue, are
    CANCELLED.
    """
    known = {job: state.split(" ", 1)[0] for job, state in states.items()}
    preempted = [job for job, state in known.items() if state == "PREEMPTED"]
    return known | dict.fromkeys(_not_in_queue(preempted), "CANCELLED")


def _not_in_queue(jobs: list[str]) -> set[str]:
    """Those of the jobs that neither run nor wait; none if SLURM does not answer."""
    if jobs:
        with suppress(OSError, subprocess.SubprocessError):
            # Of one job that SLURM has forgotten squeue would complain, of several it says nothing.
            answer = hold.squeue([f"--jobs={','.join([*jobs, '0'])}", "--format=%i"], timeout_s=60)
            answer.check_returncode()
            return set(jobs) - set(answer.stdout.split())
    return set()
