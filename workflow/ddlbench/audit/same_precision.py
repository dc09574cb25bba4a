"""Runs that are compared compute in the same number format.

A run in bf16 beside one in fp32 measures the format, not the framework.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing

SEVERITY = "error"
NEEDS = ("runs.precision",)
WHAT_TO_DO = "compare runs of one precision, or make precision an axis by giving each a recipe of its own"
SOURCE = (
    "Hoefler 2018, Twelve ways to fool the masses when reporting performance of deep learning workloads, "
    "numbers 4 and 7; MLCommons training_rules, Numerics"
)


def check(material: Material) -> Iterator[Finding]:
    """A finding for each group of compared runs that differ in `precision`."""
    yield from differing(material.runs, "precision", [*COMPARED], "number formats")
