"""Runs that are compared are validated on the same number of images."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing

SEVERITY = "error"
NEEDS = ("runs.validation_images",)
WHAT_TO_DO = "prepare the data set again and train the runs again"
SOURCE = "MLCommons training_rules, Quality measure"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each group of compared runs that differ in `validation_images`."""
    yield from differing(material.runs, "validation_images", ["dataset"], "images of the validation split")
