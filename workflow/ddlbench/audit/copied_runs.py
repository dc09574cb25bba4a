"""No two runs have the same times to the last digit.

Two trainings never take equally long; equal times are one run under two names.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import ids, timed

SEVERITY = "error"
NEEDS = ("runs.throughput_images_per_s", "runs.train_s")
WHAT_TO_DO = "find out which run was copied, move its folder away and start the workflow"
SOURCE = "seen in published tables"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each set of copies."""
    runs = timed(material.runs)
    copies = runs[runs.duplicated(["throughput_images_per_s", "train_s"], keep=False)]
    for values, rows in copies.groupby(["throughput_images_per_s", "train_s"]):
        yield Finding(ids(rows), f"{len(rows)} runs with {values[0]:.6f} images/s and {values[1]:.6f} s of training")
