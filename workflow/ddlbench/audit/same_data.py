"""Runs that are compared read the same data: the SHA-256 of the manifest, which holds those of all parts, is equal.

Data that was prepared again with another source or seed is other data, even under the same name. Forms (raw, tfrecord)
have manifests of their own and are compared within themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import differing

SEVERITY = "error"
NEEDS = ("runs.data_sha256",)
WHAT_TO_DO = "train the runs of the older data again"
SOURCE = "MLCommons training_rules, Data Set"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each data set and form that runs read in more than one state."""
    yield from differing(material.runs, "data_sha256", ["machine", "dataset", "form"], "digests of the data")
