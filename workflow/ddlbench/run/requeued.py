"""A SLURM job that had made its run and was queued again (`scontrol requeue`, a node that died a moment later).

Snakemake removes a job's outputs before it executes it: in that job the record would be removed and made again. So
`snakefile.py` asks here first. A run that somebody wants to be made again (`--forcerun`, another recipe) comes in a new
SLURM job, which nobody has queued again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ddlbench import layout
from ddlbench.plan import stale
from ddlbench.record import read_log
from ddlbench.spec import RunSpec


def end_if_finished(run: str, spec: RunSpec) -> None:
    """Within the job that makes a run: end its Snakemake well if the job was queued again and had made the run."""
    job = os.environ.get("SLURM_JOB_ID")
    if job and os.environ.get("SLURM_RESTART_COUNT", "0") != "0" and made_by(job, run, spec):
        print(f"{run}: this job had made it before it was queued again", file=sys.stderr)
        sys.exit(0)


def made_by(job: str, run: str, spec: RunSpec) -> bool:
    """Whether the run's record is whole, of these settings, and was made by this SLURM job."""
    log = Path(layout.run_log(run))
    if not log.exists() or not Path(layout.run_steps(run)).exists() or stale.is_of_other_settings(log, spec):
        return False
    last = {event.key: event for event in read_log(log)}
    ended = "run_stop" in last and last["run_stop"].metadata.get("status") == "success"
    return ended and "ddlbench_facts" in last and last["ddlbench_facts"].value.get("slurm_job_id") == job
