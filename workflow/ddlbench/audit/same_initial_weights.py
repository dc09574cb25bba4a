"""Runs that are compared begin with the same weights: the SHA-256 of the initial weights is equal for equal seeds.

Frameworks that draw their own weights begin elsewhere; with few repeats that is a difference in accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing

SEVERITY = "error"
NEEDS = ("runs.initial_weights_sha256", "runs.seed")
WHAT_TO_DO = "let one seed make the model on all ranks; train the deviating runs again"
SOURCE = "MLCommons training_rules, Weight initialization; Madhyastha and Jain 2019, arXiv:1909.10447"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each model and seed with more than one set of weights."""
    yield from differing(
        material.runs, "initial_weights_sha256", ["dataset", "model", "image_size", "seed"], "initial weights"
    )
