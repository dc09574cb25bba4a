"""No measured column is a constant multiple of another.

Either one was computed from the other, or both only say what a third one leaves; neither is a measurement of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pandas as pd

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids, in_

SEVERITY = "warning"
NEEDS = ("shares.table",)
WHAT_TO_DO = "show times, not shares, or say how the column was made"
SOURCE = (
    "Aach et al. 2023, Table 2: I/O is 0.67 to 0.71 of cuDNN with ResNet-50 and 0.49 to 0.51 with ResNet-101 "
    "and ResNet-152"
)
ROWS, VARIES, CONSTANT = 8, 1.5, 0.015


def mad(values: pd.Series[float]) -> float:
    """The median distance from the median: a few rows that were changed later do not move it."""
    return float((values - values.median()).abs().median())


def check(material: Material) -> Iterator[Finding]:
    """A finding for each pair of columns in step with each other."""
    for what, rows in groups(material["shares"], ["table", "model"]):
        columns = [c for c in rows if str(c).endswith("_percent") and (rows[c] > 0).all()]
        for one, other in combinations(columns, 2):
            ratio = rows[one] / rows[other]
            varies = min(rows[c].max() / rows[c].min() for c in (one, other))
            if len(rows) >= ROWS and varies > VARIES and mad(ratio) < CONSTANT * ratio.median():
                yield Finding(
                    ids(rows),
                    f"{one} is {ratio.median():.3f} of {other} in {len(rows)} rows{in_(what)}, "
                    f"although both vary by more than a factor of {varies:.1f}",
                )
