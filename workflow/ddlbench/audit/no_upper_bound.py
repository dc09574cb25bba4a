"""Speeds are shown beside what bounds them: the synthetic loader, or the hardware's peak.

Without it nobody can tell a good number from a bad one.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids, in_, timed

SEVERITY = "note"
NEEDS = ("runs.throughput_images_per_s", "runs.loader")
WHAT_TO_DO = "add loader synthetic to the study, or peak_tflops_per_worker to the machine's file"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 11"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each group without a bound."""
    for what, rows in groups(timed(material.runs), COMPARED):
        if "synthetic" not in set(rows["loader"]) and ("mfu" not in rows or rows["mfu"].isna().all()):
            yield Finding(ids(rows), f"no synthetic loader and no utilisation{in_(what)} among {len(rows)} runs")
