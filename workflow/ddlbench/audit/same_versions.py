"""Versions of PyTorch, Python, a framework and a loader are the same in all runs that are compared.

All that differ are listed; kernels change between versions.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing, present

SEVERITY = "warning"
NEEDS = ("runs.torch_version",)
WHAT_TO_DO = "train the runs of the older version again, or say which figure shows which version"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 9"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each package and group of compared runs."""
    own = {"torch_version": [], "python_version": [], "framework_version": ["framework"], "loader_version": ["loader"]}
    for column in present(material.runs, list(own)):
        yield from differing(material.runs, column, [*COMPARED, *own[column]], f"values of {column}")
