"""Times in another's log do not go back while it trains.

Ranks' lines may come in another order; here the times of one epoch after the other are compared. Where they go back by
more than 1 s, and 1 % of the training, its time is in no table; rates are of the epochs whose times can be true.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import each

SEVERITY = "warning"
NEEDS = ("submissions.clock_back_s",)
WHAT_TO_DO = "find out which clock was set, and do not use times of this log"
SOURCE = "MLCommons training_rules: results are differences of the log's times"
LEAST_S = 0.1  # clocks of several nodes differ by less


def check(material: Material) -> Iterator[Finding]:
    """A finding for each log whose times go back."""
    logs = material["submissions"]
    yield from each(logs, logs["clock_back_s"] > LEAST_S, "times of successive marks go back by {clock_back_s} s")
