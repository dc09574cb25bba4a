"""A speed-up or an efficiency says how fast its base is, in images per second.

A relative number alone hides a base that is slow.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "warning"
NEEDS = ("numbers.quantity",)
WHAT_TO_DO = "add base_images_per_s, the throughput of the base"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 1"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each relative number whose base has no rate."""
    numbers = material["numbers"]
    relative = numbers["quantity"].isin(["speed-up", "efficiency"])
    unnamed = numbers["base_images_per_s"].isna() if "base_images_per_s" in numbers else True
    yield from each(
        numbers, relative & unnamed, "{quantity} {value} at {workers} workers: its base's images/s are not said"
    )
