"""Steps whose update was left out are few: fp16 overflows now and then, not in one step of a hundred.

Steps without an update are fast and teach nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "warning"
NEEDS = ("runs.skipped_steps", "runs.steps")
WHAT_TO_DO = "lower the loss scale or use bf16"
SOURCE = "Micikevicius et al. 2018, arXiv:1710.03740"
SHARE = 0.01


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run."""
    runs = material.runs
    bad = runs["skipped_steps"] > SHARE * runs["steps"]
    yield from each(runs, bad.astype("bool"), "{skipped_steps} of {steps} steps had no update")
