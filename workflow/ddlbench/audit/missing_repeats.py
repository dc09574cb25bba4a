"""Repeats are counted without gaps: a run that was made and is not there is a run that somebody left out.

Runs that failed are in table `failures`, and are named there.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import CELL, COMPARED, is_control
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids, present

SEVERITY = "warning"
NEEDS = ("runs.repeat",)
WHAT_TO_DO = "make the missing repeats; they run when the workflow is started again"
SOURCE = (
    "MLCommons training_rules, Run Results (consecutive runs); Hoefler 2018, Twelve ways to fool the masses "
    "when reporting performance of deep learning workloads, number 3"
)


def check(material: Material) -> Iterator[Finding]:
    """A finding for each cell with a gap."""
    runs = material.runs[~is_control(material.runs)]
    if runs.empty:
        return  # no run left a record
    keys = present(runs, [*COMPARED, *CELL])
    table = runs.groupby(keys, dropna=False)["repeat"].agg(["max", "nunique"])
    gaps = table[table["max"] > table["nunique"]].reset_index()[keys]
    for _, own in groups(runs.merge(gaps, on=keys), keys):
        there = ", ".join(map(str, sorted(own["repeat"])))
        yield Finding(ids(own), f"repeats {there} of {own['repeat'].max()} are there")
