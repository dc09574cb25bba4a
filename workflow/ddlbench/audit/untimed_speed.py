"""No speed comes of a run that shared its machine or carried a profiler."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "error"
NEEDS = ("runs.timed", "runs.throughput_images_per_s")
WHAT_TO_DO = "leave such numbers out"
SOURCE = "Hoefler and Belli, SC'15, rule 9"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run."""
    runs = material.runs
    spoiled = ~runs["timed"].astype("bool")
    if "profiled" in runs:
        spoiled |= runs["profiled"].astype("bool")
    yield from each(runs, spoiled, "{throughput_images_per_s} images/s, although timed is {timed}")
