"""Each run says its commit, the version of PyTorch, its computers, its initial weights and, where data is read, its
digest."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import ids

SEVERITY = "warning"
NEEDS = ("runs.run",)
WHAT_TO_DO = "train the runs again with this version, which records it"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 9; MLCommons training_rules, reproducibility"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each column that some run does not say."""
    runs = material.runs
    if "records" in runs:  # others' logs have other words for it, or none
        runs = runs[runs["records"].fillna("ours") == "ours"]
    for column in ("commit", "torch_version", "hosts", "initial_weights_sha256", "data_sha256"):
        silent = runs[column].isna() | (runs[column] == "") if column in runs else pd.Series(True, runs.index)
        if column == "data_sha256" and "form" in runs:
            silent &= runs["form"].notna()
        if silent.any():
            said = f"{column} is said by {len(runs) - int(silent.sum())} of {len(runs)} runs"
            yield Finding(ids(runs[silent]), said)
