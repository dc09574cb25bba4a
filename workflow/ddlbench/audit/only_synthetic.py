"""Speeds are measured with pictures that are read and decoded, not with the synthetic loader alone.

Without input, a training scales better than any that learns.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids, in_, timed

SEVERITY = "warning"
NEEDS = ("runs.throughput_images_per_s", "runs.loader")
WHAT_TO_DO = "add a loader that reads data"
SOURCE = "Hoefler 2018, Twelve ways to fool the masses when reporting performance of deep learning workloads, number 6"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each group that never reads."""
    for what, rows in groups(timed(material.runs), COMPARED):
        if set(rows["loader"]) == {"synthetic"}:
            yield Finding(ids(rows), f"all {len(rows)} runs have the synthetic loader{in_(what)}; none reads pictures")
