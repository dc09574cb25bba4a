"""ResNet-50 on ImageNet does not reach 75.9 percent in fewer epochs than MLPerf's reference convergence points allow.

Who is faster by more than the tolerance trains something else: other data, a validation set that leaks. Between two
batches the reference is interpolated.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "error"
NEEDS = ("runs.model", "runs.dataset", "runs.global_batch", "epochs.top1", "convergence.global_batch")
WHAT_TO_DO = "look for validation pictures among the training pictures, and for another way of counting epochs"
SOURCE = "MLCommons training_rules, Reference Convergence Points"
TARGET, TOLERANCE = 0.759, 0.1


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run that converges too fast."""
    points = material["convergence"].sort_values("global_batch")
    runs = material.runs[(material.runs["model"] == "resnet50") & (material.runs["dataset"] == "imagenet")]
    reached = material["epochs"][material["epochs"]["top1"] >= TARGET].groupby("run")["epoch"].min().rename("reached")
    runs = runs.join(reached, on="run", how="inner")
    known = points.groupby("global_batch")["mean_epochs_to_0.759"].mean()
    expected = pd.Series(np.interp(runs["global_batch"].astype("float64"), known.index, known), runs.index)
    says = "75.9 percent after {reached} epochs at batch {global_batch}; the reference needs {expected}"
    yield from each(runs.assign(expected=expected), runs["reached"] < (1 - TOLERANCE) * expected, says)
