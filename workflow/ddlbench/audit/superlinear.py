"""An efficiency above 1 is explained, or its base is measured again.

More workers have more cache and memory; most often the base was slow that day.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "warning"
NEEDS = ("numbers.quantity", "numbers.value")
WHAT_TO_DO = "repeat the base, and say why more workers do more than their share"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 1; Hoefler and Belli, rule 11"
MOST = 1.05  # of the slowest repeat: what lies above is no noise of a few percent


def check(material: Material) -> Iterator[Finding]:
    """A finding for each point above 1."""
    numbers = material["numbers"]
    least = numbers["efficiency_min"].fillna(numbers["value"]) if "efficiency_min" in numbers else numbers["value"]
    bad = (numbers["quantity"] == "efficiency") & (least > MOST)
    yield from each(numbers.assign(least=least), bad, "efficiency {value} at {workers} workers; at most 1 is ideal")
