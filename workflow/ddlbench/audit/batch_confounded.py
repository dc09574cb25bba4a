"""Where the batch grows with the workers, a difference in accuracy may come of either.

Weak scaling is drawn over workers; its accuracy is that of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids, in_

SEVERITY = "note"
NEEDS = ("runs.final_top1", "runs.workers", "runs.global_batch")
WHAT_TO_DO = "say the batch beside the number of workers, or train the small number of workers at the large batch, too"
SOURCE = (
    "Hoefler 2018, Twelve ways to fool the masses when reporting performance of deep learning workloads, "
    "numbers 1 and 11"
)


def check(material: Material) -> Iterator[Finding]:
    """A finding for each group whose batch is tied to its workers."""
    for what, rows in groups(material.runs, COMPARED):
        pairs = rows[["workers", "global_batch"]].drop_duplicates()
        if len(pairs) > 1 and pairs["workers"].is_unique and pairs["global_batch"].is_unique:
            said = [f"{b} on {w}" for w, b in sorted(pairs.itertuples(index=False, name=None))]
            yield Finding(ids(rows), f"accuracies of batch {', '.join(said)} workers{in_(what)}: both change at once")
