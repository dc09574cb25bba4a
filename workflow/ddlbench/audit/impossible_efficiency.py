"""Speed-ups, efficiencies and throughputs are finite and above 0."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "error"
NEEDS = ("numbers.quantity", "numbers.value")
WHAT_TO_DO = "find out which run gave it"
SOURCE = "arithmetic"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each impossible number."""
    numbers = material["numbers"]
    bad = numbers["quantity"].isin(["speed-up", "efficiency", "throughput"]) & ~numbers["value"].between(
        0, math.inf, "neither"
    )
    yield from each(numbers, bad, "{quantity} {value} at {workers} workers; allowed: finite, above 0")
