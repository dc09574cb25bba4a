"""Runs that are compared ran on computers with the same processor, GPU and driver.

Partitions may hide several kinds of nodes behind one name.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing, present

SEVERITY = "error"
NEEDS = ("runs.cpu",)
WHAT_TO_DO = "name the kind of node in the machine file's partition and train the deviating runs again"
SOURCE = (
    "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 9; Hoefler 2018, Twelve ways to fool the "
    "masses when reporting performance of deep learning workloads, number 4"
)


def check(material: Material) -> Iterator[Finding]:
    """A finding for each machine and part that differs."""
    for column in present(material.runs, ["cpu", "gpu", "driver"]):
        yield from differing(material.runs, column, ["machine"], f"values of {column}")
