"""Frameworks and loaders that are compared at one number of workers share at least one batch size.

With batches that have nothing in common, a difference in speed or accuracy may come of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids, in_, timed

SEVERITY = "error"
NEEDS = ("runs.global_batch", "runs.workers", "runs.framework", "runs.loader")
WHAT_TO_DO = "give the blocks of the study the same batch_per_worker or global_batch"
SOURCE = "Hoefler 2018, Twelve ways to fool the masses when reporting performance of deep learning workloads, number 11"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each number of workers at which no batch size is common."""
    for what, rows in groups(timed(material.runs), [*COMPARED, "workers"]):
        batches = {names: set(own["global_batch"]) for names, own in rows.groupby(["framework", "loader"])}
        shared = set.intersection(*batches.values())
        if len(batches) > 1 and not shared:
            said = [f"{' with '.join(map(str, names))} {sorted(own)}" for names, own in sorted(batches.items())]
            yield Finding(ids(rows), f"no batch size is common{in_(what)}: {'; '.join(said)}")
