"""Times are finite and at least 0, rates finite and above 0, and a whole is not shorter than its parts: the training
not shorter than its epochs. Runs with an impossible rate are left out of all other comparisons of rates.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.measures import COLUMNS
from ddlbench.analysis.possible import is_time
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each, positive

SEVERITY = "error"
NEEDS = ("runs.train_s", "epochs.train_s")
WHAT_TO_DO = "find out who set the clock; train the run again"
SOURCE = "ddlbench/analysis/trust.py, which refuses records by the same judgement"
ROUNDING = 0.01


def check(material: Material) -> Iterator[Finding]:
    """A finding for each impossible time or rate."""
    for column in [c.name for c in COLUMNS if c.unit == "s" and c.name in material.runs]:
        given = material.runs[material.runs[column].notna()]
        yield from each(given, ~is_time(given[column]), f"{column} is {{{column}}}")
    if "throughput_images_per_s" in material.runs:
        given = material.runs[material.runs["throughput_images_per_s"].notna()]
        says = "throughput_images_per_s is {throughput_images_per_s}"
        yield from each(given, ~positive(given["throughput_images_per_s"]), says)
    parts = material["epochs"].groupby("run")["train_s"].sum().rename("parts")
    both = material.runs.join(parts, on="run")
    yield from each(
        both, both["parts"] > (1 + ROUNDING) * both["train_s"], "epochs take {parts} s, the training {train_s} s"
    )
