"""A utilisation is above 0 and at most 1, and counts the model's operations only.

Above 1, a peak is wrong, or operations are counted that the model does not ask for (recomputation).
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "error"
NEEDS = ("runs.mfu",)
WHAT_TO_DO = "check peak_tflops_per_worker of the machine's file"
SOURCE = "Chowdhery et al. 2022, arXiv:2204.02311, section 4.1; Hoefler 2018, number 7"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run."""
    yield from each(
        material.runs, ~material.runs["mfu"].between(0, 1, "right"), "utilisation {mfu}; allowed: above 0, at most 1"
    )
