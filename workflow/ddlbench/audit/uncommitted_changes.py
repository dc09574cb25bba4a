"""Runs were made by a version of ddlbench that can be had again."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import ids

SEVERITY = "warning"
NEEDS = ("runs.uncommitted_changes",)
WHAT_TO_DO = "commit the changes before the runs are made"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 9"


def check(material: Material) -> Iterator[Finding]:
    """One finding for all of them."""
    changed = material.runs[material.runs["uncommitted_changes"].astype("bool")]
    if len(changed):
        said = f"{len(changed)} of {len(material.runs)} runs were made with files that differ from their commit"
        yield Finding(ids(changed), said)
