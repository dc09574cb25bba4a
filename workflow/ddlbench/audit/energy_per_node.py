"""Energies are compared between nodes that are filled alike.

A host's energy is that of the whole node: with two of four workers on it, each seems to cost twice as much.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids, in_

SEVERITY = "note"
NEEDS = ("runs.energy_j", "runs.workers_per_node", "runs.workers")
WHAT_TO_DO = "compare energy from one full node on"
SOURCE = "arXiv:2510.12166 (compare machines per node)"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each group of unevenly filled nodes."""
    for what, rows in groups(material.runs, ["machine", "dataset", "model", "recipe"]):
        filled = sorted(rows["workers_per_node"].unique())
        if len(filled) > 1:
            said = f"nodes with {', '.join(map(str, filled))} workers{in_(what)}"
            yield Finding(ids(rows), f"energies of {said}; idle parts of a node are counted in full")
