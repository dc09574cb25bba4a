"""Accuracies are from 0 to 1, the best one is at least the last, and top-5 is at least top-1."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.possible import is_fraction
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each, present

SEVERITY = "error"
NEEDS = ("runs.final_top1",)
WHAT_TO_DO = "find out how the accuracy was counted"
SOURCE = "arithmetic"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run."""
    runs = material.runs
    for column in present(runs, ["final_top1", "best_top1", "final_top5", "best_top5"]):
        given = runs[runs[column].notna()]
        yield from each(
            given, ~given[column].map(is_fraction).astype("bool"), f"{column} is {{{column}}}; allowed: 0 to 1"
        )
    for low, high in (("final_top1", "best_top1"), ("final_top5", "best_top5"), ("final_top1", "final_top5")):
        if low in runs and high in runs:
            yield from each(runs, runs[low] > runs[high], f"{low} {{{low}}} is more than {high} {{{high}}}")
