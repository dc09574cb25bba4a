"""Stalls are shown, not dropped: single steps that took far longer than the others.

They stay in all measures. Where they are more than one in a hundred, a mean says little, and the p95 says more.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "note"
NEEDS = ("runs.stalls", "runs.timed_steps", "runs.step_median_s", "runs.step_max_s")
WHAT_TO_DO = "look at step_p95_s and step_max_s beside the median"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 8"
SHARE = 0.01


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run with many stalls."""
    runs = material.runs
    says = "{stalls} of {timed_steps} steps stalled; the longest took {step_max_s} s, the median is {step_median_s} s"
    yield from each(runs, (runs["stalls"] > SHARE * runs["timed_steps"]).astype("bool"), says)
