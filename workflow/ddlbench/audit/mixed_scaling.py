"""A line over numbers of workers is weak scaling (the batch of a worker stays) or strong scaling (the whole batch
stays).

A line that mixes them shows neither.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import PLACE, groups, ids, in_

SEVERITY = "error"
NEEDS = ("numbers.quantity", "numbers.workers", "numbers.global_batch")
WHAT_TO_DO = "draw two lines"
SOURCE = "Hoefler 2018, Twelve ways to fool the masses when reporting performance of deep learning workloads, number 11"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each line that mixes both."""
    numbers = material["numbers"]
    numbers = numbers[numbers["quantity"].isin(["speed-up", "efficiency", "throughput"])]
    numbers = numbers.assign(own=numbers["global_batch"] / numbers["workers"])
    keys = ["series", "quantity"] if "series" in numbers else [*PLACE[:5], "source_of", "table", "quantity"]
    for what, rows in groups(numbers, [key for key in keys if key != "source"]):
        if rows["own"].nunique() > 1 and rows["global_batch"].nunique() > 1:
            points = rows.sort_values("workers").drop_duplicates("workers")
            said = [f"{b:g} on {w:g}" for b, w in zip(points["global_batch"], points["workers"], strict=True)]
            yield Finding(
                ids(rows), f"neither the batch nor a worker's share of it stays{in_(what)}: {', '.join(said)}"
            )
