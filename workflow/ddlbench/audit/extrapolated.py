"""Times of whole trainings of which only some epochs were trained are marked."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import ids

SEVERITY = "note"
NEEDS = ("runs.extrapolated", "runs.epochs", "runs.of_epochs")
WHAT_TO_DO = "say so beside the number"
SOURCE = "Hoefler 2018, number 10"


def check(material: Material) -> Iterator[Finding]:
    """One finding for all of them."""
    part = material.runs[material.runs["extrapolated"].astype("bool")]
    if len(part):
        low, high = part["epochs"].min(), part["of_epochs"].max()
        yield Finding(ids(part), f"{len(part)} of {len(material.runs)} runs trained {low} of {high} epochs")
