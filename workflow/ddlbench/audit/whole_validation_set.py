"""An accuracy rests on all images of the validation split.

Scripts that print the accuracy of the last batch, or of one rank, say little: of 64 images one is 1.6 percent.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "error"
NEEDS = ("runs.validated_images", "runs.validation_images")
WHAT_TO_DO = "sum correct answers over all batches and ranks"
SOURCE = (
    "the training script of Aach et al. 2023 prints the last batch's accuracy; MLCommons training_rules, "
    "Quality measure"
)


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run."""
    runs = material.runs
    yield from each(
        runs,
        runs["validated_images"] < runs["validation_images"],
        "accuracy of {validated_images} images; the validation split has {validation_images}",
    )
