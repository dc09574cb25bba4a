"""Runs that are compared at one number of workers have the same workers per node and loader threads.

Fewer threads per worker starve a loader; fewer workers per node leave each more memory bandwidth and network.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing, present, timed

SEVERITY = "warning"
NEEDS = ("runs.workers",)
WHAT_TO_DO = "train with one machine file"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rules 2 and 9"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each number of workers and resource."""
    for column in present(material.runs, ["workers_per_node", "loader_threads"]):
        yield from differing(timed(material.runs), column, [*COMPARED, "workers"], f"values of {column}")
