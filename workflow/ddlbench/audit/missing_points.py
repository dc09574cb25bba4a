"""Frameworks and loaders that are compared were measured on the same numbers of workers, or it is said why not.

A line that ends early may have ended because it fell.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids, in_, timed

SEVERITY = "note"
NEEDS = ()
WHAT_TO_DO = "run the missing points, or say why they are missing"
SOURCE = (
    "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 2; Aach et al. 2023, Table 2: the native "
    "loader ends at 512 of 1024 GPUs"
)


def check(material: Material) -> Iterator[Finding]:
    """A finding for each framework and loader with a gap."""
    tables = [timed(material.runs)] if "runs" in material.tables and "throughput_images_per_s" in material.runs else []
    tables += [material["shares"]] if "shares" in material.tables and "runs" not in material.tables else []
    for table in tables:
        if not {"workers", "loader"}.issubset(table.columns):
            continue
        for what, rows in groups(table, [*COMPARED, "table"]):
            everywhere = set(rows["workers"])
            for name, own in groups(rows, ["framework", "loader"]):
                missing = sorted(everywhere - set(own["workers"]))
                if missing:
                    said = f"{name} has nothing at {', '.join(map(str, missing))} workers{in_(what)}"
                    yield Finding(ids(own), f"{said}; others have")
