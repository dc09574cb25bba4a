"""Records that cannot be true are named; they are in no table and no figure."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material

SEVERITY = "warning"
NEEDS = ("refused.run",)
WHAT_TO_DO = "find out who changed the record; move its folder away and start the workflow to make the run again"
SOURCE = "ddlbench/analysis/trust.py"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each refused record."""
    for row in material["refused"].to_dict("records"):
        yield Finding((row["run"],), f"{row['file']}: {row['what']}")
