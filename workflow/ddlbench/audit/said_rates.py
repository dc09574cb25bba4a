"""A rate that another's log says is the one that its samples, epochs and clocks give.

Tables and figures have the rate of the clocks. Where a log has no marks of time to check its rate with, tables have
what it says, and this rule says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import ended_well
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "error"
NEEDS = ("submissions.said_images_per_s",)
WHAT_TO_DO = "use the rate of the clocks, as the tables do; ask the submitter what the log's rate is of"
SOURCE = "seen in published logs: rates of one rank, of steps, or with other samples"
DIFFERS = 0.1  # the log's rate is a median of epochs or of steps, the clocks' a mean


def check(material: Material) -> Iterator[Finding]:
    """A finding for each log whose rate and clocks disagree, or cannot be compared."""
    logs = material["submissions"]
    ratio = logs["said_images_per_s"] / logs["clock_images_per_s"]
    logs = logs.assign(ratio=ratio)
    says = "the log says {said_images_per_s} images/s, its {clocks} {clock_images_per_s}: {ratio} times as many"
    yield from each(logs, (ratio - 1).abs() > DIFFERS, says)
    ended = ended_well(logs)
    says = "the log says {said_images_per_s} images/s, and no times of epochs, blocks or evaluations to check them with"
    yield from each(logs, ended & logs["clock_images_per_s"].isna(), says)
