"""It is said which share of a training the speed rests on.

A short run spends most of its time in warm-up; its throughput is that of a few steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import ids

SEVERITY = "note"
NEEDS = ("runs.train_s", "runs.epoch_s", "runs.epochs", "runs.steps", "runs.timed_steps")
WHAT_TO_DO = "train more epochs, or give each worker more images"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 10"
LEAST = 0.5


def check(material: Material) -> Iterator[Finding]:
    """One finding for all of them."""
    runs = material.runs
    share = runs["timed_steps"] / runs["steps"] * runs["epochs"] * runs["epoch_s"] / runs["train_s"]
    few = runs[share < LEAST]
    if len(few):
        said = f"{share.min():.2f} of the training's time in the shortest case"
        yield Finding(ids(few), f"the speed of {len(few)} of {len(runs)} runs rests on less than {LEAST}: {said}")
