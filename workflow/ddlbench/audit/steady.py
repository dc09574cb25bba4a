"""Step times became steady before they were counted.

Where half of a run or more is warm-up, its rate says how the machine warms up. The rule for warm-up is MSER-5
(docs/statistics.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "warning"
NEEDS = ("runs.steady", "runs.cut_steps", "runs.steps")
WHAT_TO_DO = "train more epochs"
SOURCE = (
    "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rules 5 and 10; White 1997, doi:10.1177/003754979706900601"
)


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run."""
    runs = material.runs
    unsteady = ~runs["steady"].astype("bool")
    yield from each(runs, unsteady, "{cut_steps} of {steps} steps were cut, and the rest is not steady")
