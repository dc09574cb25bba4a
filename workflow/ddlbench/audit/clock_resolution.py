"""A step is at least a thousand times longer than the smallest time that its clock tells apart."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "warning"
NEEDS = ("runs.clock_resolution_s", "runs.epoch_s", "runs.steps", "runs.epochs")
WHAT_TO_DO = "give each worker a larger batch"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 10"
LEAST = 1000


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run."""
    runs = material.runs
    step = runs["epoch_s"] / (runs["steps"] / runs["epochs"])
    bad = step < LEAST * runs["clock_resolution_s"]
    yield from each(runs.assign(step=step), bad, "a step takes {step} s, its clock tells {clock_resolution_s} s apart")
