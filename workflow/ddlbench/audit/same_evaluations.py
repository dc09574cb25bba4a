"""Runs that are compared are validated equally often per epoch.

Validation is part of the whole training's time; who validates less often is faster, and sees a target later.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing

SEVERITY = "error"
NEEDS = ("runs.evaluations", "runs.epochs")
WHAT_TO_DO = "validate all runs after the same epochs"
SOURCE = "MLCommons training_rules, Quality measure (evaluation frequency)"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each group of compared runs."""
    runs = material.runs.assign(an_epoch=material.runs["evaluations"] / material.runs["epochs"])
    yield from differing(runs, "an_epoch", COMPARED, "validations per epoch")
