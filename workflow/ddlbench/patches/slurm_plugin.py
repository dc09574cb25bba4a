"""Snakemake's SLURM plugin 2.8.0, how it sees, submits and cancels jobs: with this a study never
waits without a word.

    cancelled jobs    sacct says `CANCELLED by <uid>`; the plugin compares with `CANCELLED` and
                      waits for ever. It takes
                      every PREEMPTED job for one that is queued again, which is not so with
                      `PreemptMode=CANCEL`. Where it sees that a job was ended, it submits the next
                      while the first one's processes may still run.
    held jobs         wait for a person; the plugin says nothing.
    no accounting     the plugin asks sacct for ever, and checks accounts with sacctmgr: squeue is asked instead.
    silence           Where no answer of sacct names a job (it is refused or away, or the site renames jobs) the
                      plugin waits for ever without a word. After two minutes that is said, and
                      SLURM is asked for the job's number until one answers.
    no answer at all  Where no attempt of a look at the jobs is answered, the plugin forgets its jobs, and waits for
                      nothing without an end. No answer is no states: it looks again.
    forgotten jobs    squeue does not know a job that ended some minutes ago, and does not find one that the site has
                      renamed. Such a job is asked for by its number, before it counts as ended.
    no beginning      of a job that failed before its run began it says "Reason: Unknown", and names
                      the log of an
                      earlier try first.
    failed nodes      of a job that lost a node it asks where it ran, to avoid those nodes. Once
                      SLURM has queued the
                      job again, sacct says `None assigned`: no job could be submitted any more. A
                      job on many nodes made it avoid all of them. Only the node of a one-node job
                      is avoided; SLURM itself gives no work to a node that is down.
    folders of logs   a call that ends removes all empty ones, those of jobs that still wait too:
                      `ddlbench status` in
                      a second shell did. SLURM then cannot open a job's log, and the job fails as
                      it starts. Empty folders stay.
    limits on jobs    SLURM refuses a job while its user has too many (MaxSubmitJobs). The plugin
                      calls that a failure,
                      and all tries are burnt within seconds. Now it waits, and submits the job when
                      there is room.
    arrays            A site without arrays (MaxArraySize 0 or 1) stops the plugin, which needs none here.
    banners           A site's sbatch may print more than the job's number. The plugin gives up on two numbers, and the
                      job runs on, unknown to Snakemake. The number is on a line of its own
                      (`--parsable`).
    refused jobs      It prints SLURM's sentence with the whole command of sbatch, and without what to do.
    paths             A per cent sign in the project's path is a pattern of sbatch's in the log's name. The plugin puts
                      the job's command between double quotes, in which a shell replaces `$name`.
                      Nobody quotes the path of Python.
    comments          The plugin takes a job's comment for itself. Some sites read settings there: theirs go first.
    a second start    In a job the plugin starts Snakemake, which starts Snakemake again, which executes the job: the
                      nodes of the job wait for both. The first one can execute what starts ranks by
                      itself.
    orphans           Ctrl-C cancels only jobs that are in Snakemake's list, which is empty while it
                      asks for states;
                      those that wait to be submitted still are. All jobs of a call have one name:
                      they are cancelled by it, and no other is submitted. So is a job that SLURM
                      took though its submission failed.

Upstream (snakemake/snakemake-executor-plugin-slurm): it could keep the first word of what sacct
says, ask squeue whether a pre-empted job is still in the queue and why a job waits, ask squeue too
when sacct says that accounting is disabled, show the end of the job's own log, take sacct's
`FailedNode`, remove only folders of jobs that it made, and do the rest as it is done here, each in
a few lines. docs/upstream.md has the texts for the four worst.
"""

import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ddlbench.patches import only_for, private
from ddlbench.slurm import pending_reasons, sbatch_refusals, squeue

PLUGIN = "snakemake_executor_plugin_slurm"
WAIT_S, TRIES = (
    10.0,
    6,
)  # how often it is seen whether there is room; after so many times SLURM is asked in any case
# sacct's and squeue's words for a job that SLURM ended, and for one that is not started yet.
CUT_SHORT = ("CANCELLED", "TIMEOUT", "DEADLINE")
SILENT_S = 120.0  # a job that no answer contains is reported after this time
WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")


def patch_plugin() -> None:
    """Patch the plug-in, if it is installed, to see and report what it overlooks.

    Nothing happens when it is called again.
    """
    try:
        plugin: Any = import_module(PLUGIN)
    except ModuleNotFoundError:
        return
    query = plugin.query_job_status
    if getattr(query, "patched", False):
        return
    only_for("snakemake-executor-plugin-slurm", ("2.8",), "slurm_plugin")
    # Users' settings (SQUEUE_STATES, SACCT_FORMAT, ...) hide jobs from the plugin.
    for name in [name for name in os.environ if name.startswith(("SQUEUE_", "SACCT_"))]:
        del os.environ[name]
    subjects: set[str] = set()
    submitted: set[str] = set()
    forgotten: set[str] = set()
    silence = Silence()

    async def query_job_status(command: str, logger: Any) -> tuple[dict[str, str], float]:
        """Query the job states as the plug-in does: return (state by job id, seconds that it took).

        Of a job without a state the plug-in asks again. No states if SLURM does not answer.
        """
        of_queue = command.startswith("squeue ")
        states, seconds = await query(
            command.replace("squeue ", "squeue --all ", 1) if of_queue else command, logger
        )
        answered, states = states is not None, states or {}
        silence.hear(states)
        if silent := silence.jobs(time.monotonic()):
            found = of_silent(silent, of_queue, answered, subjects)
            silence.hear(found)
            states = found | states
        if not states and not answered:
            return {}, 0.0
        if of_queue and answered:
            # It ended and was forgotten: Snakemake takes it for done if its files are there, else
            # for failed.
            found = by_number(submitted - forgotten - states.keys())
            forgotten.update(job for job, state in found.items() if state == "UNKNOWN")
            states = dict.fromkeys(forgotten, "UNKNOWN") | found | states
        states = ended_states(states)
        say_held([job for job, state in states.items() if state in WAITING], subjects)
        return states, seconds or 0.0

    query_job_status.patched = True  # type: ignore[attr-defined]
    plugin.query_job_status = query_job_status
    plugin.delete_empty_dirs = lambda path: None
    executor = plugin.Executor
    report, submit = executor.report_job_error, executor.report_job_submission

    def report_job_error(self: Any, job_info: Any, msg: str | None = None, **more: Any) -> None:
        with suppress(Exception):  # an error in the report of a failure must not hide the failure
            if job_info.external_jobid is None:
                more["cause"], msg = "refused by SLURM", sbatch_refusals.refusal(msg or "")
            else:
                job_logs = [Path(log) for log in more.get("aux_logs") or [] if log]
                logs = [Path(log) for log in job_info.job.log]
                if why := never_began(job_info.external_jobid, job_logs, logs):
                    more["cause"] = "did not begin"
                    msg = (
                        f"{msg} {why} " if msg else why
                    )  # Snakemake adds a sentence without a space
        report(self, job_info, msg=msg, **more)

    def report_job_submission(self: Any, job_info: Any, *more: Any, **named: Any) -> None:
        submitted.add(str(job_info.external_jobid))
        silence.begin(str(job_info.external_jobid))
        submit(self, job_info, *more, **named)

    executor._failed_nodes = FailedNodes.on_executors()
    executor.report_job_error, executor.report_job_submission = (
        report_job_error,
        report_job_submission,
    )
    patch_submission(plugin)


class Silence:
    """The jobs of this call that have not ended, as far as anybody said, and when one was named
    last: `since`.
    """

    def __init__(self) -> None:
        self.since: dict[str, float] = {}
        self.ours: set[str] = set()

    def begin(self, job: str) -> None:
        """Note a job that was submitted."""
        self.ours.add(job)
        self.since[job] = time.monotonic()

    def hear(self, states: Mapping[str, str]) -> None:
        """Note an answer."""
        for job, state in ((job, state) for job, state in states.items() if job in self.ours):
            if state.split(" ", 1)[0] in (*WAITING, *squeue.LIVING, "PREEMPTED", "NODE_FAIL"):
                self.since[job] = time.monotonic()
            else:
                self.since.pop(job, None)

    def jobs(self, now: float) -> list[str]:
        """Return the jobs that no answer has contained for SILENT_S."""
        return [job for job, since in self.since.items() if now - since >= SILENT_S]


def of_silent(
    jobs: list[str], of_queue: bool, answered: bool, subjects: set[str]
) -> dict[str, str]:
    """Ask for the states of jobs that no answer names, and report that once: `subjects` were named
    before. A job that SLURM no longer knows has ended, nobody knows how: Snakemake takes it for
    done if its files are there.
    """
    tool = "squeue" if of_queue else "sacct"
    why = "answers, but does not list them" if answered else "does not answer"
    if new := [job for job in jobs if f"silent {job}" not in subjects]:
        subjects.update(f"silent {job}" for job in new)
        text = (
            f"SLURM jobs {', '.join(new)}: {tool} {why} for {SILENT_S / 60:.0f} minutes; they are"
            " queried by job id"
        )
        print(text, file=sys.stderr, flush=True)
    return by_number(jobs)


def by_number(jobs: Collection[str]) -> dict[str, str]:
    """Return the states of these jobs, asked for by number; UNKNOWN is that of one that SLURM no
    longer knows. None of them if SLURM does not answer.
    """
    states = squeue.states(sorted(jobs)) if jobs else {}
    return {} if states is None else dict.fromkeys(jobs, "UNKNOWN") | states


class FailedNodes(set[str]):
    """The nodes that later jobs avoid.

    One that is added must be one node's name: see the head of this file.
    """

    def add(self, node: str) -> None:
        if re.fullmatch(r"[\w.-]+", node) and node not in ("None", "Unknown"):
            super().add(node)

    @classmethod
    def on_executors(cls) -> property:
        """Return an attribute for the plug-in's executor, which makes a plain set of the nodes that
        the user named: the attribute makes it one of ours.
        """

        def take(executor: Any, named: set[str]) -> None:
            executor.__dict__["failed_nodes"] = cls(named)

        return property(lambda executor: executor.__dict__["failed_nodes"], take)


def ended_states(states: Mapping[str, str]) -> dict[str, str]:
    """Convert states by job id to those that the plug-in knows: `CANCELLED by 0`, and a preempted
    job that has left the queue, become CANCELLED. A job of which processes still run becomes
    COMPLETING.
    """
    first_words = {job: state.split(" ", 1)[0] for job, state in states.items()}
    # Ranks of a cancelled job may still write their checkpoint: another job must not make the run
    # yet.
    first_words |= dict.fromkeys(
        squeue.completing([job for job, state in first_words.items() if state in CUT_SHORT]),
        "COMPLETING",
    )
    preempted = [job for job, state in first_words.items() if state == "PREEMPTED"]
    queued = squeue.in_queue(preempted)
    return first_words | (
        {} if queued is None else dict.fromkeys(set(preempted) - queued.keys(), "CANCELLED")
    )


def say_held(pending: list[str], subjects: set[str]) -> None:
    """Name each job that waits for a person, and each limit that jobs share, once: `subjects` were
    named before.
    """
    for job, reason in (
        squeue.in_queue([job for job in pending if job not in subjects]) or {}
    ).items():
        advice, subject = pending_reasons.advice(job, reason), job
        if not advice and reason not in subjects:  # once for all jobs that wait for the same
            advice, subject = (
                pending_reasons.shared_limit(reason) or pending_reasons.maintenance(reason),
                reason,
            )
        if advice:
            subjects.add(subject)
            print(f"SLURM job {job} {advice}", file=sys.stderr, flush=True)


def settle_accounting(settings: Any) -> None:
    """Make the plug-in query squeue, and check no account, where SLURM has no
        accounting database.

    `settings` are the plug-in's.
    """
    why = (
        squeue.no_accounting() if hasattr(settings, "status_command") else None
    )  # else another executor's
    if why is None:
        return
    print(
        f"SLURM has no accounting here ({why}): the states of jobs are taken from squeue",
        file=sys.stderr,
        flush=True,
    )
    settings.status_command = "squeue"
    with suppress(ModuleNotFoundError):
        plugin: Any = import_module(PLUGIN)
        plugin.is_query_tool_available = lambda tool: (
            tool == "squeue"
        )  # else it falls back to sacct, or queries sacct for the reason
        plugin.validate_account = lambda account, logger: account
        plugin.get_account = lambda logger: None


def never_began(job: str, job_logs: list[Path], logs: list[Path]) -> str:
    """Return a message about a job that failed before its run began; "" if its run did begin.

    `job_logs` are its own, `logs` those of the rule; one of these that is older than the job is an
    earlier try's.
    """
    where = squeue.where(job)
    there = [log for log in logs if log.exists()]
    if (
        where is None
        or not logs
        or any(log.stat().st_mtime >= where.started_s - 2 for log in there)
    ):
        return ""
    texts = (
        log.read_text(encoding="utf-8", errors="replace")[: 1 << 16]
        for log in job_logs
        if log.is_file()
    )
    missing_line = next(filter(None, map(squeue.missing, texts)), None)
    parts = [f"It ended before its run began, on {where.nodes}"]
    if where.blind:
        advice = f"exclude_nodes: [{where.nodes}] in the machine's file keeps jobs off it"
        parts[0] += f": that node does not see {Path.cwd()}, or may not write there; {advice}."
    else:
        full = missing_line and ("No space left" in missing_line or "quota" in missing_line)
        todo = "free disk space there" if full else "does this exist on that node?"
        parts[0] += f": {missing_line}; {todo}" if missing_line else "."
    if job_logs and not where.blind:
        parts.append(f"Its log is {job_logs[0]}.")
    parts += [f"{log} is of an earlier attempt." for log in there]
    return " ".join(parts)


def keep_caches_here(workflow: Any) -> None:
    """Put the caches of jobs into the project's folder: on some sites' compute nodes there is no
    home folder, and Snakemake does not start without a cache. Jobs get this process's environment,
    and use its cache of source files.
    """
    folder = Path(".snakemake/cache").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ |= {"XDG_CACHE_HOME": str(folder), "TRITON_CACHE_DIR": str(folder / "triton")}
    sources = workflow.sourcecache
    if sources.runtime_cache is not None:  # else the user has said where
        here = TemporaryDirectory(prefix="sources-", dir=folder, ignore_cleanup_errors=True)
        sources.runtime_cache, sources.at_home = (
            here,
            sources.runtime_cache,
        )  # what was read from there may be again


def patch_jobstep() -> None:
    """Within a job: call Python by its path whatever its characters are, and start what starts
    ranks by itself in this very Snakemake.
    """
    try:
        executor: Any = import_module(f"{PLUGIN}_jobstep").Executor
    except ModuleNotFoundError:
        return
    executor.get_python_executable = python
    start_again = executor.run_job
    if getattr(start_again, "patched", False):
        return
    only_for("snakemake-executor-plugin-slurm-jobstep", ("0.6",), "slurm_plugin")

    def run_job(self: Any, job: Any) -> None:
        starts_ranks = "mpi" in set(job.resources.keys())  # "" for one rank
        if job.is_group() or not starts_ranks or self.job_array_task:
            start_again(self, job)
            return
        for name in [name for name in os.environ if _is_of_submission(name)]:
            del os.environ[name]
        here = private(
            self.workflow.scheduler, "_local_executor", "snakemake", ("9",), "slurm_plugin"
        )
        here.run_job(job)

    run_job.patched = True  # type: ignore[attr-defined]
    executor.run_job = run_job


# SLURM's variables that identify the job, and say whether it was requeued (`slurm/step.py`). The rest
# its own srun would take for options.
KEPT = (
    "ARRAY_JOB_ID",
    "ARRAY_TASK_ID",
    "ARRAY_TASK_MIN",
    "ARRAY_TASK_MAX",
    "ARRAY_TASK_STEP",
    "CLUSTER_NAME",
    "RESTART_COUNT",
)
KEPT_OF_SLURM = {
    f"SLURM_{name}" for name in ("JOB_ID", "JOBID", "SUBMIT_DIR", "SUBMIT_HOST", *KEPT)
}


def _is_of_submission(variable: str) -> bool:
    """Tell whether the plug-in removes a variable from the environment of what a job starts."""
    return variable.startswith(("SRUN_", "SBATCH_")) or (
        variable.startswith("SLURM_") and variable not in KEPT_OF_SLURM
    )


def python(executor: Any) -> str:
    """Return the Python of jobs, quoted for a shell."""
    return shlex.quote(sys.executable)


def patch_submission(plugin: Any) -> None:
    """Patch how the plug-in's module submits and cancels jobs."""
    executor = plugin.Executor
    run, report, read = (
        executor.run_job,
        executor._report_job_error_threadsafe,
        plugin.validate_or_get_slurm_job_id,
    )
    execution, submission = executor.format_job_exec, plugin.get_submit_command
    this = threading.local()  # a job that is being submitted; two threads do that
    ended = threading.Event()  # nothing is submitted any more
    reasons: set[str] = set()

    def told_to_stop(self: Any) -> bool:
        return ended.is_set() or getattr(self.workflow.scheduler, "_user_kill", None) is not None

    def run_job(self: Any, job: Any) -> None:
        """Submit a job, as soon as SLURM takes it."""
        this.empty = False
        while not ended.is_set():
            this.refused = None
            run(self, job)
            if this.refused is None:
                return
            if this.refused not in reasons:
                reasons.add(this.refused)
                most = sbatch_refusals.most_jobs(this.refused)
                limit = this.refused + (f": at most {most}" if most else "")
                words = (
                    f"SLURM takes no more jobs for now ({limit}); the others are submitted as soon"
                    " as it takes more"
                )
                print(words, file=sys.stderr, flush=True)
            before = squeue.jobs_of_mine()
            for _ in range(TRIES):  # there is room as soon as a job has ended
                ended.wait(WAIT_S)
                if (
                    told_to_stop(self)
                    or not sbatch_refusals.is_own_limit(this.refused)
                    or squeue.jobs_of_mine() != before
                ):
                    break

    def report_error(self: Any, job_info: Any, msg: str) -> None:
        reason = sbatch_refusals.later(msg)
        if reason and not told_to_stop(self):
            before = this.empty
            this.empty = sbatch_refusals.is_own_limit(reason) and squeue.jobs_of_mine() == 0
            if not (
                before and this.empty
            ):  # else the user may have none at all; once, one may just have ended
                this.refused = reason
                return
        with suppress(Exception):  # what is left of a failure must not hide it
            wildcards = plugin.get_job_wildcards(job_info.job)
            comment = f"rule_{job_info.job.name}" + (f"_wildcards_{wildcards}" if wildcards else "")
            squeue.cancel(self.run_uuid, comment)
        report(self, job_info, msg)

    def cancel_jobs(self: Any, active_jobs: list[Any]) -> None:
        ended.set()
        self._job_submission_executor.shutdown(wait=True)  # two may just be submitted
        squeue.cancel(self.run_uuid)

    def job_id(first: str, output: str) -> str:
        lines = re.findall(r"(?m)^(\d+)(?:;\S+)?\s*$", output)
        return str(lines[-1] if lines else read(first, output))

    def format_job_exec(self: Any, job: Any) -> str:
        command = str(execution(self, job))
        as_script = self.workflow.executor_settings.pass_command_as_script
        return command if as_script else re.sub(r"[\\$`]", r"\\\g<0>", command)

    def submit_command(job: Any, params: dict[str, Any], **others: Any) -> str:
        words = [job.resources.get("site_comment"), params["comment_str"]]
        log = Path(params["slurm_logfile"])
        ours = {"comment_str": " ".join(filter(None, words))}
        ours["slurm_logfile"] = f"{str(log.parent).replace('%', '%%')}/{log.name}"
        return str(submission(job, params | ours, **others))

    plugin.get_submit_command = submit_command
    executor.run_job, executor._report_job_error_threadsafe = run_job, report_error
    executor.get_python_executable = python
    executor.cancel_jobs, executor.format_job_exec = cancel_jobs, format_job_exec
    plugin.validate_or_get_slurm_job_id, plugin.get_max_array_size = job_id, lambda: 1000
