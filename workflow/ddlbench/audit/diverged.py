"""A run's loss is finite, lower at its end than in its first epoch, and lower than that of guessing.

A run that diverged says nothing about speed that anybody wants. Who gives each of C classes the same probability has a
loss of ln(C), with and without label smoothing; runs that train a part of their epochs are not asked for that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each
from ddlbench.core import registry

SEVERITY = "warning"
NEEDS = ("runs.final_loss", "epochs.loss", "epochs.epoch")
WHAT_TO_DO = "lower the learning rate or lengthen the warm-up"
SOURCE = "Hoefler 2018, Twelve ways to fool the masses when reporting performance of deep learning workloads, number 1"
ALMOST = 0.99  # of the loss of guessing: batches scatter


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run that got worse, or learnt nothing."""
    first = material["epochs"].query("epoch == 1").set_index("run")["loss"].rename("first_loss")
    runs = material.runs.join(first, on="run")
    learns = runs["final_top1"].notna() if "final_top1" in runs else pd.Series(True, runs.index)
    runs["guessing"] = runs["dataset"].map(_loss_of_guessing) if "dataset" in runs else math.nan
    whole = runs["epochs"] >= runs["of_epochs"] if {"epochs", "of_epochs"} <= {*runs} else True
    guesses = learns & whole & (runs["final_loss"] > ALMOST * runs["guessing"])
    worse = learns & ~guesses & (runs["final_loss"] > runs["first_loss"])
    yield from each(runs, guesses, "loss {final_loss} at the end; guessing has {guessing}")
    yield from each(runs, worse, "loss {final_loss} at the end, {first_loss} in the first epoch")


def _loss_of_guessing(dataset: str) -> float:
    """NaN of a data set that is not one of ours."""
    if dataset not in registry.members("datasets"):
        return math.nan
    return math.log(registry.member("datasets", dataset).NUM_CLASSES)
