"""Shares of one whole add up to at most 100 percent; to 100 where all of them are given."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each, groups

SEVERITY = "error"
NEEDS = ("shares.table",)
WHAT_TO_DO = "find out which share counts what another counts already"
SOURCE = "arithmetic"
ROUNDING = 0.5


def check(material: Material) -> Iterator[Finding]:
    """A finding for each row."""
    for _, rows in groups(material["shares"], ["table"]):
        columns = [str(c) for c in rows if str(c).endswith("_percent") and rows[c].notna().any()]
        total = rows[columns].sum(axis=1)
        whole = "other_percent" in columns
        bad = (total > 100 + ROUNDING) | (rows[columns] < 0).any(axis=1) | (whole & (total < 100 - ROUNDING))
        yield from each(rows.assign(total=total), bad, f"{', '.join(columns)} add up to {{total}}, not to 100")
