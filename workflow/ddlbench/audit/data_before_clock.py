"""The clock starts before a loader touches its data; what came before is said.

Here loaders are asked for their first images while the framework starts. They read ahead by some batches only, and the
first epoch is warm-up; but in a whole training of few seconds it shows.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import ids

SEVERITY = "note"
NEEDS = ("runs.data_before_clock_s", "runs.train_s")
WHAT_TO_DO = "train longer where times of whole trainings are compared"
SOURCE = "MLCommons training_rules, Run Results"
MOST = 0.02


def check(material: Material) -> Iterator[Finding]:
    """One finding for all of them."""
    runs = material.runs
    much = runs[runs["data_before_clock_s"] > MOST * runs["train_s"]]
    if len(much):
        row = much.iloc[int((much["data_before_clock_s"] / much["train_s"]).argmax())]
        said = f"{row['data_before_clock_s']:.2f} s before a training of {row['train_s']:.2f} s"
        yield Finding(ids(much), f"loaders of {len(much)} of {len(runs)} runs were asked early: at most {said}")
