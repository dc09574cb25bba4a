"""Releases of the Linux kernel are listed where they differ.

It breaks no comparison; it is where to look when one computer is slow.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing

SEVERITY = "note"
NEEDS = ("runs.kernel",)
WHAT_TO_DO = "look at `hosts` in table runs when repeats differ"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 9"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each machine with several kernels."""
    yield from differing(material.runs, "kernel", ["machine"], "kernels")
