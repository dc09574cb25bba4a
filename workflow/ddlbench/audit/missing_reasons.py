"""A measure that is null has a reason; it is not left out in silence."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.measures import COLUMNS
from ddlbench.audit import Finding, Material

SEVERITY = "error"
NEEDS = ("runs.run", "not_measured.column")
WHAT_TO_DO = "make the tables again; if it stays, report it as a fault of ddlbench"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 2"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each null without a reason."""
    runs = material.runs
    names = [column.name for column in COLUMNS if column.name in runs]
    null = runs[["run", *names]].melt("run", var_name="column")
    null = null[null["value"].isna()]
    given = set(zip(material["not_measured"]["run"], material["not_measured"]["column"], strict=True))
    for run, column in zip(null["run"], null["column"], strict=True):
        if (run, column) not in given:
            yield Finding((run,), f"{column} is null, and table not_measured has no reason for it")
