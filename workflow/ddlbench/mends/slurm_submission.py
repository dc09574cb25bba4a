"""Snakemake's SLURM plugin 2.8.0, how it submits and cancels jobs. `slurm_states.py` applies it.

    limits on jobs    SLURM refuses a job while its user has too many (MaxSubmitJobs). The plugin calls that a failure,
                      and all tries are burnt within seconds. Now it waits, and submits the job when there is room.
    arrays            A site without arrays (MaxArraySize 0 or 1) stops the plugin, which needs none here.
    banners           A site's sbatch may print more than the job's number. The plugin gives up on two numbers, and the
                      job runs on, unknown to Snakemake. The number is on a line of its own (`--parsable`).
    paths             The plugin puts the job's command between double quotes, in which a shell replaces `$name`. Nobody
                      quotes the path of Python.
    comments          The plugin takes a job's comment for itself. Some sites read settings there: theirs go first.
    orphans           Ctrl-C cancels only jobs that are in Snakemake's list, which is empty while it asks for states;
                      those that wait to be submitted still are. All jobs of a call have one name: they are cancelled by
                      it, and no other is submitted. So is a job that SLURM took though its submission failed.

Upstream (snakemake/snakemake-executor-plugin-slurm): it could do the same, each in a few lines.
"""

import re
import shlex
import sys
import threading
from contextlib import suppress
from typing import Any

from ddlbench.mends import only_for
from ddlbench.slurm import queue as slurm

WAIT_S, TRIES = 10.0, 6  # how often it is seen whether there is room; after so many times SLURM is asked in any case


def python(executor: Any) -> str:
    """The Python of jobs, for a shell."""
    return shlex.quote(sys.executable)


def mend(plugin: Any) -> None:
    """Mend the plugin's module."""
    only_for("snakemake-executor-plugin-slurm", ("2.8",), "slurm_submission")
    executor = plugin.Executor
    run, report, read = executor.run_job, executor._report_job_error_threadsafe, plugin.validate_or_get_slurm_job_id
    execution, submission = executor.format_job_exec, plugin.get_submit_command
    this = threading.local()  # a job that is being submitted; two threads do that
    ended = threading.Event()  # nothing is submitted any more
    told: set[str] = set()

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
            if this.refused not in told:
                told.add(this.refused)
                most = slurm.most_jobs(this.refused)
                limit = this.refused + (f": at most {most}" if most else "")
                words = f"SLURM takes no more jobs for now ({limit}); the others are submitted when it does"
                print(words, file=sys.stderr, flush=True)
            before = slurm.jobs_of_mine()
            for _ in range(TRIES):  # there is room as soon as a job has ended
                ended.wait(WAIT_S)
                if told_to_stop(self) or not slurm.is_own_limit(this.refused) or slurm.jobs_of_mine() != before:
                    break

    def report_error(self: Any, job_info: Any, msg: str) -> None:
        reason = slurm.later(msg)
        if reason and not told_to_stop(self):
            before = this.empty
            this.empty = slurm.is_own_limit(reason) and slurm.jobs_of_mine() == 0
            if not (before and this.empty):  # else the user may have none at all; once, one may just have ended
                this.refused = reason
                return
        with suppress(Exception):  # what is left of a failure must not hide it
            wildcards = plugin.get_job_wildcards(job_info.job)
            comment = f"rule_{job_info.job.name}" + (f"_wildcards_{wildcards}" if wildcards else "")
            slurm.cancel(self.run_uuid, comment)
        report(self, job_info, msg)

    def cancel_jobs(self: Any, active_jobs: list[Any]) -> None:
        ended.set()
        self._job_submission_executor.shutdown(wait=True)  # two may just be submitted
        slurm.cancel(self.run_uuid)

    def job_id(first: str, said: str) -> str:
        lines = re.findall(r"(?m)^(\d+)(?:;\S+)?\s*$", said)
        return str(lines[-1] if lines else read(first, said))

    def format_job_exec(self: Any, job: Any) -> str:
        command = str(execution(self, job))
        as_script = self.workflow.executor_settings.pass_command_as_script
        return command if as_script else re.sub(r"[\\$`]", r"\\\g<0>", command)

    def submit_command(job: Any, params: dict[str, Any], **others: Any) -> str:
        words = [job.resources.get("site_comment"), params["comment_str"]]
        return str(submission(job, params | {"comment_str": " ".join(filter(None, words))}, **others))

    plugin.get_submit_command = submit_command
    executor.run_job, executor._report_job_error_threadsafe = run_job, report_error
    executor.get_python_executable = python
    executor.cancel_jobs, executor.format_job_exec = cancel_jobs, format_job_exec
    plugin.validate_or_get_slurm_job_id, plugin.get_max_array_size = job_id, lambda: 1000
