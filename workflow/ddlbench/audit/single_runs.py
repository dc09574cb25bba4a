"""A point that one run stands for says n = 1: nobody knows how far another run would lie from it."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import ids

SEVERITY = "note"
NEEDS = ("numbers.repeats",)
WHAT_TO_DO = "set repeats in the study, 3 at least"
SOURCE = (
    "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 5; MLCommons training_rules, Benchmark "
    "Results (5 runs of ResNet)"
)


def check(material: Material) -> Iterator[Finding]:
    """One finding for all points of one run."""
    numbers = material["numbers"]
    points = numbers[numbers["quantity"] == "throughput"]
    alone = points[points["repeats"] == 1]
    if len(alone):
        yield Finding(ids(alone), f"n = 1 at {len(alone)} of {len(points)} points")
