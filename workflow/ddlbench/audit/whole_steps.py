"""A run makes as many steps as its images need: the last batch of an epoch is small, and is not dropped.

Whoever drops it trains on fewer images, the more the larger the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.possible import steps
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "error"
NEEDS = ("runs.steps", "runs.images", "runs.global_batch", "runs.epochs")
WHAT_TO_DO = "keep the last batch"
SOURCE = "MLCommons training_rules, Equivalence exceptions (last batch)"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run."""
    runs = material.runs
    expected = steps(runs["images"], runs["global_batch"]) * runs["epochs"]
    yield from each(
        runs.assign(expected=expected),
        runs["steps"] != expected,
        "{steps} steps in {epochs} epochs; {images} images at batch {global_batch} need {expected}",
    )
