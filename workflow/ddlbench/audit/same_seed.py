"""Repeats have different seeds, and every run says its seed.

Repeats of one seed show the machine's noise, not that of training.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import CELL, COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids, present

SEVERITY = "error"
NEEDS = ("runs.seed", "runs.repeat")
WHAT_TO_DO = "let repeats move the seed"
SOURCE = "MLCommons training_rules, Run Results (seeds); Picard 2021, arXiv:2109.08203"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each cell whose repeats share a seed."""
    keys = present(material.runs, [*COMPARED, *CELL])
    twice = material.runs[material.runs.duplicated([*keys, "seed"], keep=False)]
    for _, rows in groups(twice, [*keys, "seed"]):
        repeats = ", ".join(map(str, sorted(rows["repeat"])))
        yield Finding(ids(rows), f"repeats {repeats} all have seed {rows['seed'].iloc[0]}")
