"""Each image is trained on once an epoch, over all ranks.

Rows that say otherwise come of samplers that pad or drop. ddlbench refuses such records by the same count.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "error"
NEEDS = ("runs.images_seen", "runs.images", "runs.epochs")
WHAT_TO_DO = "use a sampler that deals every image once; train the run again"
SOURCE = "MLCommons training_rules, Data traversal"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run."""
    runs = material.runs
    expected = runs["images"] * runs["epochs"]
    yield from each(
        runs.assign(expected=expected),
        runs["images_seen"] != expected,
        "{images_seen} images were trained on; {images} images in {epochs} epochs are {expected}",
    )
