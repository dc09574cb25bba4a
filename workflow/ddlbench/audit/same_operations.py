"""A model costs the same operations per image in all runs that are compared.

Otherwise two runs train two models under one name, and their utilisation counts something else.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing

SEVERITY = "error"
NEEDS = ("runs.flops_per_image",)
WHAT_TO_DO = (
    "find out which run's model differs; version 0.1.0 counted grouped and depthwise convolutions too often: make its "
    "runs of such models again"
)
SOURCE = "Chowdhery et al. 2022, arXiv:2204.02311, section 4.1"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each model and image size."""
    yield from differing(material.runs, "flops_per_image", ["dataset", "model", "image_size"], "operations per image")
