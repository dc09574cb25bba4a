"""Runs of one recipe and batch have the same settings: optimizer, rate, momentum, weight decay, label smoothing, ...

Two runs may carry one recipe's name and have been trained with two of its versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing, present
from ddlbench.core.recipe import Recipe

SEVERITY = "error"
NEEDS = ("runs.recipe", "runs.global_batch")
WHAT_TO_DO = "train the runs of the older recipe again, or give the new recipe a name of its own"
SOURCE = "MLCommons training_rules, Hyperparameters; Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 9"
RULES_OF_THEIR_OWN = ("augmentation", "image_size", "precision", "seed")
SETTINGS = [field.name for field in fields(Recipe) if field.name not in ("name", *RULES_OF_THEIR_OWN)]


def check(material: Material) -> Iterator[Finding]:
    """A finding for each setting that differs within a recipe and batch."""
    for column in present(material.runs, SETTINGS):
        yield from differing(material.runs, column, [*COMPARED, "global_batch"], f"values of {column}")
