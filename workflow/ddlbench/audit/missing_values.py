"""A published cell without a number says why in `note`."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "error"
NEEDS = ("numbers.quantity", "numbers.relation")
WHAT_TO_DO = "add the reason, or leave the row out"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 2"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each empty cell."""
    numbers = material["numbers"]
    silent = numbers["note"].isna() if "note" in numbers else True
    yield from each(
        numbers, numbers["value"].isna() & silent, "{quantity} at {workers} workers has neither a value nor a note"
    )
