"""Runs that are compared at one batch have the same learning rate in each epoch, at its first and at its last step.

Some adapters multiply the rate by the number of workers in silence; accuracies then compare two recipes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ddlbench.analysis.together import COMPARED, alike, words
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import ids, in_, present, short

SEVERITY = "error"
NEEDS = ("epochs.lr", "epochs.lr_end", "epochs.epoch", "runs.global_batch")
WHAT_TO_DO = "let the recipe own the learning rate and train the deviating runs again"
SOURCE = "MLCommons training_rules, Hyperparameters; seen in itwinai's Horovod adapter"
SAME = 1e-6  # of the rate: float64 in all records


def check(material: Material) -> Iterator[Finding]:
    """A finding for each group of compared runs whose rates differ."""
    columns = present(material.runs, [*COMPARED, "global_batch", "epochs", "base_lr", "base_batch"])
    rates = material["epochs"].merge(material.runs[["run", *columns]], on="run")
    spread = rates.groupby([*columns, "epoch"], dropna=False)[["lr", "lr_end"]].agg(["min", "max"])
    low_of, high_of = (pd.DataFrame(spread.xs(kind, axis=1, level=1)) for kind in ("min", "max"))
    bad = spread[(high_of - low_of).max(axis=1) > SAME * high_of.max(axis=1)].reset_index()
    bad.columns = ["_".join(filter(None, map(str, name))) for name in bad.columns]
    for values, epochs in bad.groupby(columns, dropna=False):
        first = epochs.iloc[0]
        own = rates[rates["epoch"] == first["epoch"]]
        own = alike(own, dict(zip(columns, values, strict=True)), columns)
        low, high = (short(f(own["lr"].tolist() + own["lr_end"].tolist())) for f in (min, max))
        usual = own["lr_end"].median()
        deviating = own.iloc[(own["lr_end"] - usual).abs().argsort(kind="stable")[::-1]]
        what = words(columns, values)
        said = f"learning rates of epoch {first['epoch']} differ{in_(what)}: from {low} to {high}"
        yield Finding(ids(deviating), f"{said}, in {len(epochs)} epochs")
