"""A line over numbers of workers has a point at least at every fourfold.

Between two far points nothing was measured; a line there is a guess.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import PLACE, groups, ids

SEVERITY = "note"
NEEDS = ("numbers.quantity", "numbers.workers")
WHAT_TO_DO = "measure a number of workers in between, or draw points without a line"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 12"
MOST = 4


def check(material: Material) -> Iterator[Finding]:
    """A finding for each line with a gap."""
    numbers = material["numbers"]
    drawn = numbers[numbers["quantity"].isin(["efficiency", "throughput"])]
    keys = ["series", "quantity"] if "series" in drawn else [*PLACE[:5], "source_of", "table", "quantity"]
    for _, rows in groups(drawn, [key for key in keys if key != "source"]):
        counts = sorted(rows["workers"].dropna().unique())
        for low, high in pairwise(counts):
            if high > MOST * low:
                yield Finding(ids(rows), f"nothing was measured between {low:g} and {high:g} workers")
                break
