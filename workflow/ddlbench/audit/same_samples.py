"""Runs that are compared train on the same number of images an epoch.

A framework that sees fewer images finishes an epoch sooner; that is no speed.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing

SEVERITY = "error"
NEEDS = ("runs.images",)
WHAT_TO_DO = "prepare the data set again and train the runs with fewer images again"
SOURCE = "MLCommons training_rules, Data Set; Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 9"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each group of compared runs that differ in `images`."""
    yield from differing(material.runs, "images", ["dataset"], "images of the training split")
