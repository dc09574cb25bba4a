"""Published accuracies are from 0 to 1, or from 0 to 100 percent."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "error"
NEEDS = ("numbers.quantity", "numbers.value", "numbers.unit")
WHAT_TO_DO = "look at the source again"
SOURCE = "arithmetic"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each impossible accuracy."""
    numbers = material["numbers"]
    most = numbers["unit"].astype("str").map({"percent": 100.0, "1": 1.0, "1.0": 1.0}).astype("float64")
    bad = numbers["quantity"].isin(["top1", "top5"]) & ~numbers["value"].between(0, most)
    yield from each(numbers, bad, "{quantity} is {value}, in {unit}")
