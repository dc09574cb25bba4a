"""What is asked of SLURM about jobs: who is in the queue (squeue), where a job ran (scontrol), how it
ended (sacct), and their end (scancel).

Nothing here raises if SLURM does not answer, but `squeue`, which asks for living jobs only. Why a
job waits: `pending_reasons.py`; why it was not taken: `sbatch_refusals.py`.
"""

import getpass
import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from ddlbench.slurm import step
from ddlbench.slurm.sinfo import Node

# States of a job that may still have a running process.
LIVING = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "CONFIGURING", "SIGNALING", "STAGE_OUT")
# slurmd's exit code and signal for a job whose log it could not open.
BLIND = "0:53"
# A job's fields stand between these in what squeue prints: a site's banner has none of them, and a
# comment may have more than one line.
_OPEN, _NEXT, _SHUT = "<ddlbench|", "<|>", "|ddlbench>"
_MISSING = re.compile(
    r"^.*(?:: not found|No such file or directory|No module named|command not found|Permission denied|"
    r"No space left on device|Disk quota exceeded|"
    r"Exec format error|not a directory|Transport endpoint is not connected|Stale file handle).*$",
    re.M | re.I,
)


@dataclass(frozen=True)
class Where:
    """The place where a job ran, and since when [s since 1970]; `blind` if it ended because it
    could not open its log there.
    """

    nodes: str
    started_s: float
    blind: bool = False


def squeue(arguments: list[str], timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Ask SLURM for jobs, those of hidden partitions too, whatever the user has set for `squeue`
    (SQUEUE_STATES, ...). Raises OSError if there is no squeue, TimeoutExpired if it does not answer
    in time.
    """
    return subprocess.run(
        ["squeue", "--noheader", "--all", *arguments],
        env={name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def marked(*fields: str) -> str:
    """Return the fields of a job, each between our marks: as a format for squeue, or as its output.

    The field that anybody may write into comes last.
    """
    return f"{_OPEN}{_NEXT.join(fields)}{_SHUT}"


def rows(printed: str, fields: int) -> list[list[str]]:
    """Parse the jobs that squeue printed with the format of `marked`; text that is not between
    marks is ignored.
    """
    found = re.findall(f"{re.escape(_OPEN)}(.*?){re.escape(_SHUT)}", printed, re.S)
    split = (text.split(_NEXT, fields - 1) for text in found)
    return [row for row in split if len(row) == fields]


def lives(job: str) -> bool | None:
    """Return whether SLURM still has the job as running or ending. None if SLURM does not answer,
    or if its answer cannot be read.
    """
    try:  # in all states: of a job that SLURM knows there is a row
        answer = squeue([f"--jobs={job}", "--states=all", f"--format={marked('%i', '%T')}"])
    except (OSError, subprocess.SubprocessError):
        return None
    if answer.returncode:
        return False if "Invalid job id" in answer.stderr else None
    states = [state for _, state in rows(answer.stdout, 2)]
    return any(state in LIVING for state in states) if states else None


def nodes_of_this_job() -> list[Node]:
    """Return the nodes of the job that this process belongs to; none outside of a job, or if SLURM
    does not answer. Snakemake's SLURM plugin takes SLURM_JOB_NODELIST away from what a job
    executes.
    """
    job = step.job()
    answer = (
        printed("squeue", "--noheader", f"--jobs={job}", f"--format={marked('%N')}") if job else ""
    )
    names = next((names for (names,) in rows(answer, 1)), "")
    return nodes(names) if names else []


def nodes(names: str) -> list[Node]:
    """Return the nodes of SLURM's list `node[1-2]`; none if SLURM does not answer."""
    lines = printed(
        "sinfo", "--noheader", "--all", "--Node", f"--nodes={names}", "--format=%N|%c|%X|%Y|%G"
    )
    found = []
    for line in sorted(set(lines.splitlines())):  # one line for each partition of a node
        with suppress(ValueError):
            name, cpus, sockets, cores, gres = line.split("|")
            found.append(Node(gres, int(cpus), int(sockets) * int(cores), name=name))
    return found


def in_queue(jobs: list[str]) -> dict[str, str] | None:
    """Return the jobs that are in the queue, each with the reason why it waits. None if SLURM does
    not answer.
    """
    pairs = _rows("%i", "%r", only=_only(jobs)) if jobs else []
    return None if pairs is None else {job: reason for job, reason in pairs if job in jobs}


def states(jobs: list[str]) -> dict[str, str] | None:
    """Return SLURM's state of each of these jobs that it knows, by number, whatever their names
    are: squeue's, else sacct's. None if neither answers.
    """
    queued = _rows("%i", "%T", only=_only(jobs), states="--states=all")
    known = {job: state for job, state in queued or () if job in jobs}
    others = [job for job in jobs if job not in known]
    accounts = _accounts(others) if others else {}
    return None if queued is None and not accounts else known | accounts


def _accounts(jobs: list[str]) -> dict[str, str]:
    """Return the states of these jobs as sacct knows them; none if it does not answer."""
    asked = [
        "--noheader",
        "--allocations",
        "--parsable2",
        "--format=JobIDRaw,State",
        f"--jobs={','.join(jobs)}",
    ]
    rows = (line.split("|") for line in printed("sacct", *asked).splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 2 and row[0] in jobs}


def completing(jobs: list[str]) -> set[str]:
    """Return the jobs that still have running processes or nodes that clean up. None if SLURM does
    not answer.
    """
    if not jobs:
        return set()
    still = _rows("%i", only=_only(jobs), states="--states=COMPLETING")
    return {job for (job,) in still or () if job in jobs}


def _rows(*fields: str, only: str, states: str = "") -> list[list[str]] | None:
    """Query squeue for these fields of each job. None if SLURM does not answer."""
    try:
        answer = squeue([only, *filter(None, [states]), f"--format={marked(*fields)}"])
    except (OSError, subprocess.SubprocessError):
        return None
    return None if answer.returncode else rows(answer.stdout, len(fields))


def _only(jobs: list[str]) -> str:
    """Return squeue's option that selects these jobs.

    squeue reports an error if it is given one job that SLURM has forgotten, but not if it is given
    several. So job 1 is added. (0 is not a valid job number, and an error.)
    """
    return f"--jobs={','.join([*jobs, '1'])}"


def jobs_of_mine() -> int | None:
    """Return how many jobs of this user are in the queue; None if SLURM does not answer."""
    jobs = _rows("%i", only=f"--user={getpass.getuser()}")
    return None if jobs is None else len(jobs)


def own_comment(comment: str) -> str:
    """Return what Snakemake wrote into a job's comment: its last word.

    A site's words may stand before it.
    """
    return next(reversed(comment.split()), "")


def cancel(name: str, comment: str | None = None) -> None:
    """Cancel the jobs of this name, or those with this comment alone. Says so if SLURM does not
    answer.
    """
    try:
        named = squeue([f"--name={name}", f"--format={marked('%i', '%k')}"])
        named.check_returncode()
        jobs = rows(named.stdout, 2)
        ids = [job for job, its_comment in jobs if comment in (None, own_comment(its_comment))]
        if ids:
            subprocess.run(["scancel", *ids], capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        print(
            f"jobs may be left ({error}); to end them: scancel --name={name}",
            file=sys.stderr,
            flush=True,
        )


def no_accounting() -> str | None:
    """Return why sacct cannot tell how jobs ended, where SLURM has no accounting database; None where it
    does or may.
    """
    try:
        answer = _ask("sacct", "--noheader", "--allocations", "--starttime=now")
    except FileNotFoundError:
        return "sacct is not installed"
    except (OSError, subprocess.SubprocessError):
        return None
    if answer.returncode and re.search(
        r"accounting storage (?:is disabled|plugin)", answer.stderr, re.I
    ):
        return f"sacct: {answer.stderr.strip().splitlines()[0]}"
    return None


def where(job: str) -> Where | None:
    """Return where a job ran. None if SLURM no longer knows it, or if the job never started."""
    facts = dict(
        re.findall(
            r"\b(NodeList|BatchHost|StartTime|ExitCode)=(\S+)",
            printed("scontrol", "show", "job", job),
        )
    )
    try:
        started = datetime.fromisoformat(facts["StartTime"]).timestamp()
    except (KeyError, ValueError):
        return None
    nodes = facts.get("BatchHost") or facts.get("NodeList", "(null)")
    return None if nodes == "(null)" else Where(nodes, started, facts.get("ExitCode") == BLIND)


def missing(log: str) -> str | None:
    """Return the first line of a job's log about a missing file or module. None without one."""
    match = _MISSING.search(log)
    return match[0].strip()[:300] if match else None


def printed(*command: str) -> str:
    """Return the output of a SLURM command; "" if the command fails or does not answer."""
    with suppress(OSError, subprocess.SubprocessError):
        return _ask(*command).stdout
    return ""


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30)
