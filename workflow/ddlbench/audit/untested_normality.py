"""Intervals of 2 repeats rest on a normal distribution that nobody can test.

Student's t is exact for 2 repeats if logarithms of rates are normal. Three repeats are the fewest that can speak
against it (rule normality).
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import ids

SEVERITY = "note"
NEEDS = ("numbers.repeats",)
WHAT_TO_DO = "set repeats in the study, 3 at least; 6 need no such assumption"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 6"


def check(material: Material) -> Iterator[Finding]:
    """One finding for all points of two runs."""
    numbers = material["numbers"]
    points = numbers[numbers["quantity"] == "throughput"]
    two = points[points["repeats"] == 2]
    if len(two):
        yield Finding(ids(two), f"{len(two)} of {len(points)} points have intervals of 2 repeats")
