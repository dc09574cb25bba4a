"""Runs that are compared find their data in the same place: in memory (warm) or on disks (cold).

The first run of a study reads from disks, the next ones from memory. What counts is the share of the data that was in
memory before the run.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing, timed

SEVERITY = "warning"
NEEDS = ("runs.data_cached_share", "runs.workers")
WHAT_TO_DO = "read the data once before the first run, or drop it from memory before each"
SOURCE = "MLCommons training_rules, 'caches must be cleared or empty'; seen on every first run of a study"
COLD, WARM = 0.1, 0.9  # share of the data in memory


def check(material: Material) -> Iterator[Finding]:
    """A finding for each number of workers with runs in several states."""
    share = material.runs["data_cached_share"]
    state = share.map(lambda value: "warm" if value > WARM else "cold" if value < COLD else "partly warm")
    runs = material.runs.assign(cache=state)
    yield from differing(timed(runs), "cache", [*COMPARED, "form", "workers"], "states of the file cache")
