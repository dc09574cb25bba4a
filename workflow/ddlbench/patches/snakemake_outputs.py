"""Snakemake 9.27: it removes a job's outputs and log before it executes the job, and outputs after
the job failed. Killed before it has noted that a job ended, it makes what is there again.

They may be another job's by then, which makes the same run or has just made it: `run/hold.py` says
when.

Upstream (snakemake/snakemake): `Job.remove_existing_output` and `Job.cleanup` could leave the
outputs of rules that say so, as `ensure` and `update` do for single files; a job that is locked out
then harms no other.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ddlbench.patches import only_for, private

MINE = ("snakemake", ("9",), "snakemake_outputs")


def apply(
    rules: Collection[str], earlier: Callable[[Path], Path], refused: Callable[[list[Path]], None]
) -> None:
    """Stop Snakemake from removing outputs of these rules, and logs that another job may be
    writing. A job's log gets the name that `earlier` gives it; `refused` is called with the logs of
    a job that failed.
    """
    from snakemake.jobs import Job

    remove, clean = Job.remove_existing_output, Job.cleanup
    if getattr(remove, "leaves_records", False):
        return
    only_for(*MINE)

    async def remove_existing_output(self: Any) -> None:
        if self.rule.name not in rules:
            await remove(self)
            return
        # What it remembers is of the record before: should this Snakemake be killed, the new record
        # speaks for itself.
        for output in self.output:
            private(self.dag.workflow.persistence, "_delete_record", *MINE)(str(output))
        for log in map(Path, self.log):
            if earlier(log).exists():  # of the job that makes the run; this one is of a third
                log.unlink(missing_ok=True)
            elif log.exists():
                log.rename(earlier(log))

    async def cleanup(self: Any, skip_outputs: Sequence[Any]) -> None:
        if self.rule.name not in rules:
            await clean(self, skip_outputs)
            return
        # Snakemake has just noted that the job that failed made what is there now.
        self.dag.workflow.persistence.cleanup(self)
        refused([Path(log) for log in self.log])

    remove_existing_output.leaves_records = True  # type: ignore[attr-defined]
    Job.remove_existing_output, Job.cleanup = remove_existing_output, cleanup


def forget_marks(
    persistence: Any, jobs: Mapping[str, Collection[str]], sound: Callable[[str], object]
) -> None:
    """Unmark the outputs of jobs whose record is `sound`.

    Snakemake marks the outputs of a job until it has noted that the job ended, and would make these
    again. `jobs` are outputs by job.
    """
    marked, unmark = (
        private(persistence, name, *MINE)
        for name in ("_filter_incomplete_keys", "_unmark_incomplete")
    )
    marks = marked([output for outputs in jobs.values() for output in outputs])
    for job, outputs in jobs.items() if marks else ():
        if marks.intersection(outputs) and sound(job):
            for output in outputs:
                with suppress(
                    OSError
                ):  # another user's folder: then only the message is wrong: it says that the job is made again
                    unmark(output)
