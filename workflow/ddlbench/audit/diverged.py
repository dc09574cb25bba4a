"""A run's loss is finite, and lower at its end than in its first epoch.

A run that diverged says nothing about speed that anybody wants.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "warning"
NEEDS = ("runs.final_loss", "epochs.loss", "epochs.epoch")
WHAT_TO_DO = "lower the learning rate or lengthen the warm-up"
SOURCE = "Hoefler 2018, Twelve ways to fool the masses when reporting performance of deep learning workloads, number 1"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run that got worse."""
    first = material["epochs"].query("epoch == 1").set_index("run")["loss"].rename("first_loss")
    runs = material.runs.join(first, on="run")
    learns = runs["final_top1"].notna() if "final_top1" in runs else True
    worse = runs["final_loss"] > runs["first_loss"]
    yield from each(runs, learns & worse, "loss {final_loss} at the end, {first_loss} in the first epoch")
