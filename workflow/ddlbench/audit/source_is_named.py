"""A published number says where it stands: the paper, and its section or table."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "warning"
NEEDS = ("numbers.quantity",)
WHAT_TO_DO = "add the source with its section or table"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 9"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each number."""
    numbers = material["numbers"]
    silent = numbers["source"].isna() if "source" in numbers else True
    yield from each(numbers, (numbers["quantity"] != "") & silent, "{quantity} at {workers} workers has no source")
