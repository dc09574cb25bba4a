"""Snakemake 9: a job is stale if its script's file is newer than what it made, whatever is in it:
after a checkout, all jobs with a script are. Of inputs it compares contents.

Rules with a script have a digest of their code as a param (`plan/sources.py`), which a test holds
them to.

Upstream (snakemake/snakemake): `Job.outputs_older_than_script_or_notebook` could compare a
checksum, which `PersistenceBase.finished` would note beside those of inputs.
"""

from collections.abc import AsyncIterator
from typing import Any

from ddlbench.patches import only_for, private

MINE = ("snakemake", ("9",), "snakemake_scripts")


def apply() -> None:
    """Make Snakemake ignore the modification times of scripts. Raises ReleaseError."""
    from snakemake.jobs import Job

    only_for(*MINE)
    private(Job, "outputs_older_than_script_or_notebook", *MINE)

    async def none(self: Any) -> AsyncIterator[Any]:
        outputs: tuple[Any, ...] = ()
        for output in outputs:
            yield output

    Job.outputs_older_than_script_or_notebook = none
