"""Runs that failed are counted, not hidden.

Who shows the runs that came through shows the lucky ones. Jobs of inference are not counted here:
their table is made of all of them, or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ddlbench.analysis.failures import INFER
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import ids

SEVERITY = "warning"
NEEDS = ("failures.run",)
WHAT_TO_DO = "read why: ddlbench failures; then start the workflow again"
SOURCE = "MLCommons training_rules, Benchmark Results (non-converging runs)"


def check(material: Material) -> Iterator[Finding]:
    """One finding for all failed runs."""
    failures = material["failures"]
    if "rule" in failures:
        failures = failures[failures["rule"] != INFER]
    if len(failures):
        causes = Counter(failures["cause"].astype("str")) if "cause" in failures else Counter()
        said = ", ".join(f"{count} times {cause}" for cause, count in causes.most_common())
        done = len(material.runs) if "runs" in material.tables else 0
        yield Finding(ids(failures), f"{len(failures)} runs failed, {done} ended well: {said}")
