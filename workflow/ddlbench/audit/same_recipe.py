"""Runs of one recipe and batch have the same settings: optimizer, rate, momentum, weight decay, label smoothing, ...

Two runs may carry one recipe's name and have been trained with two of its versions.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import COMPARED, differing, present

SEVERITY = "error"
NEEDS = ("runs.recipe", "runs.global_batch")
WHAT_TO_DO = "train the runs of the older recipe again, or give the new recipe a name of its own"
SOURCE = "MLCommons training_rules, Hyperparameters; Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 9"
SETTINGS = (
    *("optimizer", "base_lr", "base_batch", "lr_scaling", "momentum", "nesterov", "beta1", "beta2"),
    *("trust_coefficient", "weight_decay", "decay_norm_and_bias", "clip_norm", "warmup_epochs", "warmup_lr", "lr_min"),
    *("step_epochs", "step_factor", "gamma", "power", "decay_epochs", "label_smoothing", "accumulation"),
    *("sync_batch_norm", "zero_init_last", "exponential_start", "cosine_moves"),
)


def check(material: Material) -> Iterator[Finding]:
    """A finding for each setting that differs within a recipe and batch."""
    for column in present(material.runs, SETTINGS):
        yield from differing(material.runs, column, [*COMPARED, "global_batch"], f"values of {column}")
