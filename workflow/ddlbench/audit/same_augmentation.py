"""Runs that are compared change pictures in the same way before training.

Augmentation costs time in the loader and decides accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing

SEVERITY = "error"
NEEDS = ("runs.augmentation",)
WHAT_TO_DO = "train with one recipe"
SOURCE = "MLCommons training_rules, Data Set; Aach et al. 2023 use other augmentations for DALI"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each group of compared runs that differ in `augmentation`."""
    yield from differing(material.runs, "augmentation", [*COMPARED], "augmentations")
