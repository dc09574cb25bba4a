"""Hosts are listed where runs of one worker count did not all run on the same ones.

It breaks no comparison; it is where to look when one run is slow. `ddlbench nodes` sets hosts beside each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids, in_

SEVERITY = "note"
NEEDS = ("runs.hosts", "runs.workers")
WHAT_TO_DO = "look at `hosts` in table runs when repeats differ, and at ddlbench nodes"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 9"
SHOWN = 8  # hosts that are named; table runs has all


def check(material: Material) -> Iterator[Finding]:
    """A finding for each machine and number of workers."""
    for what, rows in groups(material.runs, ["machine", "workers"]):
        rows = rows[rows["hosts"] != ""]
        if rows["hosts"].nunique() < 2:
            continue
        counts = rows["hosts"].str.split(",").explode().value_counts()
        counts = counts[counts < len(rows)].sort_index().sort_values(kind="stable")
        said = [f"{host} in {count} of {len(rows)} runs" for host, count in counts[:SHOWN].items()]
        more = [f"and {len(counts) - SHOWN} more hosts"] if len(counts) > SHOWN else []
        rare = rows["hosts"].map(rows["hosts"].value_counts()).sort_values(kind="stable")
        yield Finding(ids(rows.loc[rare.index]), f"hosts{in_(what)}: {', '.join(said + more)}")
