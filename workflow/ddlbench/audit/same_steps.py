"""Runs that are compared make the same number of steps from as many images, batch and epochs.

A loader that drops the last batch, or a rank that stops early, makes fewer.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing

SEVERITY = "error"
NEEDS = ("runs.steps", "runs.global_batch", "runs.epochs")
WHAT_TO_DO = "find out which loader drops images and train its runs again"
SOURCE = "Aach et al. 2023 compare loaders; MLCommons training_rules, Equivalence exceptions"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each group of equal settings with different numbers of steps."""
    yield from differing(material.runs, "steps", ["dataset", "images", "global_batch", "epochs"], "steps")
