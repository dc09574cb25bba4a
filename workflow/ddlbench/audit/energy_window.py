"""Energy is measured over a window much longer than its counter's period.

GPUs' sensors look at a part of the time only (a quarter on A100 and H100); in a short run chance decides.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "warning"
NEEDS = ("runs.energy_j", "runs.train_s", "runs.device")
WHAT_TO_DO = "train for a minute at least where energy is compared"
SOURCE = "Yang et al. 2023, arXiv:2312.02741"
LEAST_S = {"cpu": 1.0, "cuda": 10.0}  # RAPL counts each millisecond; NVML some ten times a second, in parts


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run."""
    runs = material.runs
    least = runs["device"].map(LEAST_S)
    says = "energy of {train_s} s on {device}; at least {least} s make a measurement"
    yield from each(runs.assign(least=least), runs["train_s"] < least, says)
