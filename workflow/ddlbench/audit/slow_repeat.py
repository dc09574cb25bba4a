"""A repeat that lies far from the others is looked at, not dropped: more than 10 percent and more than a standard
deviation off."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import CELL, COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each, present, timed

SEVERITY = "warning"
NEEDS = ("runs.throughput_images_per_s", "runs.repeat")
WHAT_TO_DO = "compare the hosts of the runs; show the outlier"
SOURCE = "Megatron-LM's rule for slow ranks; Hoefler and Belli, SC'15, rules 5 and 8"
LEAST, SHARE = 3, 0.1


def check(material: Material) -> Iterator[Finding]:
    """A finding for each repeat far off."""
    runs = timed(material.runs)
    keys = present(runs, [*COMPARED, *CELL])
    rates = runs.groupby(keys, dropna=False)["throughput_images_per_s"]
    runs = runs.assign(median=rates.transform("median"), sd=rates.transform("std"), n=rates.transform("size"))
    off = (runs["throughput_images_per_s"] - runs["median"]).abs()
    bad = (runs["n"] >= LEAST) & (off > SHARE * runs["median"]) & (off > runs["sd"])
    yield from each(runs, bad, "{throughput_images_per_s} images/s, the median of {n} repeats is {median}")
