"""Points that are compared rest on as many runs.

The best or the mean of five beside a single run is no fair comparison.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing

SEVERITY = "warning"
NEEDS = ("numbers.repeats", "numbers.workers")
WHAT_TO_DO = "make the missing repeats"
SOURCE = "MLCommons training_rules, Benchmark Results; Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 7"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each number of workers with uneven repeats."""
    numbers = material["numbers"]
    points = numbers[numbers["quantity"] == "throughput"]
    yield from differing(points, "repeats", [*COMPARED, "epochs", "batch_per_worker", "workers"], "numbers of repeats")
