"""Snakemake 9.27: it removes a job's outputs and log before it executes the job, and outputs after the job failed.

They may be another job's by then, which makes the same run or has just made it: `run/late.py` says when.

Upstream (snakemake/snakemake): `Job.remove_existing_output` and `Job.cleanup` could leave the outputs of rules that say
so, as `ensure` and `update` do for single files; a job that is locked out then harms no other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from ddlbench.mends import only_for


def mend(rules: Collection[str], earlier: Callable[[Path], Path], refused: Callable[[list[Path]], None]) -> None:
    """Have Snakemake remove no output of these rules, and no log that another job may be writing.

    A job's log gets the name that `earlier` gives it; `refused` is called with the logs of a job that failed.
    """
    from snakemake.jobs import Job

    remove, clean = Job.remove_existing_output, Job.cleanup
    if getattr(remove, "leaves_records", False):
        return
    only_for("snakemake", ("9",), "snakemake_outputs")

    async def remove_existing_output(self: Any) -> None:
        if self.rule.name not in rules:
            await remove(self)
            return
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
