"""Steps that were cut as warm-up and steps that count add up to all steps.

A rate whose images are those of all steps and whose time is that of some is too high.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "error"
NEEDS = ("runs.cut_steps", "runs.timed_steps", "runs.steps")
WHAT_TO_DO = "make the tables again; if it stays, report it as a fault of ddlbench"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 10"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run."""
    runs = material.runs
    bad = (runs["cut_steps"] + runs["timed_steps"]) != runs["steps"]
    yield from each(runs, bad, "{cut_steps} steps were cut and {timed_steps} count; {steps} were trained")
