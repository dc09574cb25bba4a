"""GPU hours say whether they are summed over GPUs or are the wall time of all."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "warning"
NEEDS = ("numbers.quantity", "numbers.unit")
WHAT_TO_DO = "add `per`: sum or wall"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 9"
UNITS = ("gpu h", "gpu-h", "gpu hours", "gpu-hours", "worker h")


def check(material: Material) -> Iterator[Finding]:
    """A finding for each number in GPU hours."""
    numbers = material["numbers"]
    hours = numbers["unit"].astype("str").str.lower().isin(UNITS) | numbers["quantity"].isin(["gpu-hours"])
    unsaid = ~numbers["per"].isin(["sum", "wall"]) if "per" in numbers else True
    yield from each(numbers, hours & unsaid, "{value} {unit}: summed over GPUs, or by the clock?")
