"""A job that came late: another one makes its run right now, or has made it since this one was asked for.

It was submitted twice, by Snakemake or its script by hand, another clone of the project has the same `results/`, or
SLURM queued it again after it had made the run. Snakemake removes a job's outputs and its log before it executes it,
and outputs after it failed: they may be another job's by then. `mends/snakemake_outputs.py` keeps them; the supervisor,
which holds the run's folder, removes what is made again (`__main__.py`). A record is never half written, so nothing
else must be removed.
"""

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ddlbench.core.files import sha256
from ddlbench.core.record import MLLOG, STEPS, Event, ended_well, read_log, sealed
from ddlbench.core.spec import RunSpec
from ddlbench.plan import stale

ASKED = "DDLBENCH_ASKED_S"  # when the Snakemake began whose job this is [s since 1970]; its jobs inherit the variable


def made(folder: Path, spec: RunSpec) -> bool:
    """Whether a job leaves a run's record as it is: it is sound, and was made after this job was asked for, or was
    already finished before SLURM requeued this very job.

    A job that no Snakemake asked for leaves every sound record: its script was submitted once more, by hand.
    """
    last = sound(folder, spec)
    if last is None or ASKED not in os.environ:
        return last is not None
    job = os.environ.get("SLURM_JOB_ID") if os.environ.get("SLURM_RESTART_COUNT", "0") != "0" else None
    by_this_job = job is not None and last["ddlbench_facts"].value.get("slurm_job_id") == job
    return by_this_job or last["run_stop"].time_s > asked_s()


def sound(folder: Path, spec: RunSpec) -> dict[str, Event] | None:
    """The last event of each key of a run's record; None if it is not whole, not as sealed, or of other settings."""
    log = folder / MLLOG
    try:
        files = sealed(log)
        if files is None or STEPS not in files or stale.is_of_other_settings(log, spec):
            return None
        last = {event.key: event for event in read_log(log)}
        good = ended_well(last) and "ddlbench_facts" in last
        return last if good and all(sha256(folder / name) == digest for name, digest in files.items()) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none, or one that tables refuse
        return None


def asked_s() -> float:
    """When this job was asked for [s since 1970]; infinity without a Snakemake."""
    try:
        return float(os.environ[ASKED])
    except (KeyError, ValueError):
        return float("inf")


def step_aside(log: Path) -> None:
    """Give the name of a job's log back to the job that it belongs to; what this process says is in another file."""
    with suppress(OSError):
        if earlier(log).exists() and os.path.samestat(os.fstat(1), log.stat()):
            log.rename(log.with_name(f"refused-{socket.gethostname()}-{os.getpid()}.log"))
            earlier(log).rename(log)


def begin(log: Path) -> None:
    """This process makes the run: the log of an earlier one is not needed any more. Raises nothing."""
    with suppress(OSError):
        earlier(log).unlink()


def print_refusals(logs: Sequence[Path]) -> None:
    """Print what jobs that were refused said, once the job with these logs has failed."""
    for said in sorted(file for log in logs for file in log.parent.glob("refused-*.log")):
        if said.stat().st_mtime > asked_s():
            print(f"{said}: {said.read_text(errors='replace').strip()}", file=sys.stderr, flush=True)


def earlier(log: Path) -> Path:
    """Where the log of a job lies while a later job of the same run may have its name."""
    return log.with_name(f".{log.name}")
