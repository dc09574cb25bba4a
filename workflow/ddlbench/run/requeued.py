"""A SLURM job that had made its run and was queued again (`scontrol requeue`, a node that died a moment later).

Snakemake removes a job's outputs before it executes it: in that job the record would be removed and made again. So
the Snakefile asks here first. A run that somebody wants to be made again (`--forcerun`, another recipe) comes in a new
SLURM job, which nobody has queued again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ddlbench import layout
from ddlbench.plan import stale
from ddlbench.record import read_log
from ddlbench.spec import RunSpec


class Planned(Protocol):
    """A run of the plan."""

    @property
    def spec(self) -> RunSpec: ...


def end_if_finished(targets: Iterable[Any], runs: Mapping[str, Planned]) -> None:
    """Within a job: end this Snakemake well if the job was queued again and had made its run. `targets` are Snakemake's
    target jobs.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if not job or os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
        return
    wanted = [target.wildcards_dict.get("run") for target in targets if target.rulename == "train"]
    if wanted and all(run in runs and made_by(job, run, runs[run].spec) for run in wanted):
        print(f"{', '.join(wanted)}: this job had made it before it was queued again", file=sys.stderr)
        sys.exit(0)


def made_by(job: str, run: str, spec: RunSpec) -> bool:
    """Whether the run's record is whole, of these settings, and was made by this SLURM job."""
    log = Path(layout.run_log(run))
    if not log.exists() or not Path(layout.run_steps(run)).exists() or stale.is_of_other_settings(log, spec):
        return False
    last = {event.key: event for event in read_log(log)}
    ended = "run_stop" in last and last["run_stop"].metadata.get("status") == "success"
    return ended and "ddlbench_facts" in last and last["ddlbench_facts"].value.get("slurm_job_id") == job
