"""Runs of two frameworks or loaders alternate in time.

If all of one come before all of the other, a machine that slows down decides who is faster.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids, in_, timed

SEVERITY = "note"
NEEDS = ("runs.started_s", "runs.throughput_images_per_s")
WHAT_TO_DO = "let the study's runs be made in random order"
SOURCE = "MLCommons training_rules, Run Results; Hoefler and Belli, SC'15, section 4.1"
LEAST = 4  # runs of each: of fewer, chance does this too often


def check(material: Material) -> Iterator[Finding]:
    """A finding for each number of workers."""
    for what, rows in groups(timed(material.runs), [*COMPARED, "workers"]):
        spans = rows.groupby(["framework", "loader"])["started_s"].agg(["min", "max", "size"])
        spans = spans[spans["size"] >= LEAST].sort_values("min")
        if len(spans) > 1 and (spans["max"].to_numpy()[:-1] < spans["min"].to_numpy()[1:]).all():
            order = [" with ".join(map(str, name)) for name in spans.index]
            yield Finding(ids(rows), f"all runs of one came before those of the next{in_(what)}: {', '.join(order)}")
