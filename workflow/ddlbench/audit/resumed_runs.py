"""Runs that were interrupted are named: their caches were cold a second time."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "note"
NEEDS = ("runs.resumes",)
WHAT_TO_DO = "compare their times with those of runs that were not interrupted"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 9"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each of them."""
    yield from each(material.runs, material.runs["resumes"] > 0, "went on from a checkpoint {resumes} times")
