"""Where a larger batch makes training faster, the accuracy at that batch is known, too.

Large batches cost accuracy; a speed at which nothing is learned is worth nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids, in_, timed

SEVERITY = "note"
NEEDS = ("runs.throughput_images_per_s", "runs.global_batch", "runs.model")
WHAT_TO_DO = "train the largest batch to its end and show its accuracy"
SOURCE = (
    "Hoefler 2018, Twelve ways to fool the masses when reporting performance of deep learning workloads, "
    "numbers 1 and 2"
)


def check(material: Material) -> Iterator[Finding]:
    """A finding for each model."""
    for what, rows in groups(material.runs, ["dataset", "model"]):
        speeds = timed(rows)
        known = rows.loc[rows["final_top1"].notna(), "global_batch"].max() if "final_top1" in rows else None
        largest = speeds["global_batch"].max()
        if speeds["global_batch"].nunique() > 1 and not (known is not None and known >= largest):
            said = f"accuracies up to batch {known:g}" if known is not None and known > 0 else "no accuracy"
            yield Finding(ids(speeds), f"there are speeds up to batch {largest}, and {said}{in_(what)}")
