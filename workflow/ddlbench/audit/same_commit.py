"""All runs of a study were made by one version of ddlbench.

Two code versions in one figure measure the change between them, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing

SEVERITY = "warning"
NEEDS = ("runs.commit",)
WHAT_TO_DO = "read the changelog between the two commits; train the older runs again if it touches them"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 9"


def check(material: Material) -> Iterator[Finding]:
    """One finding for each machine with runs of several commits."""
    yield from differing(material.runs, "commit", ["machine"], "commits")
