"""The samples of an epoch that another's log says are those of the benchmark's data set, where the rules fix it.

Some writers log the steps of an epoch there. Rates would be wrong by a factor of the batch; tables count the data set.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "warning"
NEEDS = ("submissions.said_samples", "submissions.samples")
WHAT_TO_DO = "read rates from the tables, which count the benchmark's data set"
SOURCE = "seen in published logs (retinanet: steps)"
DIFFERS = 0.01  # what is left out at an epoch's end, or padded, is less


def check(material: Material) -> Iterator[Finding]:
    """A finding for each log that says another number."""
    logs = material["submissions"]
    bad = (logs["said_samples"] / logs["samples"] - 1).abs() > DIFFERS
    yield from each(logs, bad, "train_samples is {said_samples}; {benchmark} has {samples}")
