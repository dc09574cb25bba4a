"""Speed and accuracy of a model come of the same settings.

A fast recipe beside the accuracy of a careful one is a model that nobody trained.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids, in_, timed

SEVERITY = "warning"
NEEDS = ("runs.model", "runs.recipe")
WHAT_TO_DO = "train the timed recipe to its end"
SOURCE = "Hoefler 2018, Twelve ways to fool the masses when reporting performance of deep learning workloads, number 8"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each model whose speeds and accuracies share no recipe."""
    for what, rows in groups(material.runs, ["dataset", "model"]):
        if not {"throughput_images_per_s", "final_top1"}.issubset(rows.columns):
            continue
        fast, right = set(timed(rows)["recipe"]), set(rows.loc[rows["final_top1"].notna(), "recipe"])
        if fast and right and not fast & right:
            said = f"speeds are of recipe {', '.join(sorted(fast))}, accuracies of {', '.join(sorted(right))}"
            yield Finding(ids(rows), f"{said}{in_(what)}")
