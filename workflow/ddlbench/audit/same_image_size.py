"""Runs that are compared see pictures of the same size.

Operations grow with the square of the size: larger pictures make a better ratio of computation to communication.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing

SEVERITY = "error"
NEEDS = ("runs.image_size",)
WHAT_TO_DO = "train with one recipe"
SOURCE = "Hoefler 2018, Twelve ways to fool the masses when reporting performance of deep learning workloads, number 9"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each group of compared runs that differ in `image_size`."""
    yield from differing(material.runs, "image_size", [*COMPARED], "image sizes")
