"""A speed-up or an efficiency says which number of workers it is measured from.

E = S / G and E = S * ref / G differ by the base: 234 times at 1024 GPUs is 0.23 from one GPU and 0.91 from four.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "error"
NEEDS = ("numbers.quantity",)
WHAT_TO_DO = "add ref_workers, the number of workers of the base"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 1; the formula of Aach et al. 2023 lacks it"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each relative number without a base."""
    numbers = material["numbers"]
    relative = numbers["quantity"].isin(["speed-up", "efficiency"])
    unnamed = numbers["ref_workers"].isna() if "ref_workers" in numbers else True
    says = "{quantity} {value} at {workers} workers names no base"
    yield from each(numbers, relative & unnamed, says)
