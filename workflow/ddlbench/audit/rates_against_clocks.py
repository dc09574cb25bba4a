"""A throughput is possible with the times of its own steps: the mean step, times the steps of an epoch, is at most the
time of the epoch.

A rate that the clocks do not allow was computed from something else, or times were left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.possible import steps
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "error"
NEEDS = ("runs.throughput_images_per_s", "runs.images", "runs.global_batch", "runs.data_wait_s", "runs.compute_s")
WHAT_TO_DO = "make the tables again; if it stays, report it as a fault of ddlbench"
SOURCE = "seen in published logs"
NOISE = 0.05  # the last step of an epoch is smaller than the mean


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run."""
    runs = material.runs
    messages = runs["communication_s"].fillna(0.0) if "communication_s" in runs else 0.0
    parts = (runs["data_wait_s"] + runs["compute_s"] + messages) * steps(runs["images"], runs["global_batch"])
    epoch = runs["images"] / runs["throughput_images_per_s"]
    says = "{throughput_images_per_s} images/s are {epoch} s an epoch; its steps alone take {parts} s"
    yield from each(runs.assign(parts=parts, epoch=epoch), parts > (1 + NOISE) * epoch, says)
