"""Shares of a whole, as tables of kernels have them: columns that end in `_percent`."""

from __future__ import annotations

from itertools import combinations

import pandas as pd

from ddlbench.audit import Finding, Findings, Material, rule
from ddlbench.audit._compare import each, groups, ids, in_


def shares(rows: pd.DataFrame) -> list[str]:
    """The columns of shares that have a value in some row."""
    return [str(c) for c in rows if str(c).endswith("_percent") and rows[c].notna().any()]


@rule("error", "shares.table", "find out which share counts what another counts already", "arithmetic")
def shares_add_up(material: Material) -> Findings:
    """Shares of one whole add up to at most 100 percent; to 100 where all of them are given."""
    for _, rows in groups(material["shares"], ["table"]):
        columns = shares(rows)
        total = rows[columns].sum(axis=1)
        too_few = total < 99.5 if "other_percent" in columns else False  # half a percent is rounding
        bad = (total > 100.5) | (rows[columns] < 0).any(axis=1) | too_few
        yield from each(rows.assign(total=total), bad, f"{', '.join(columns)} add up to {{total}}, not to 100")


@rule(
    "warning",
    "shares.table",
    "ask the authors which of the two rows was measured",
    "Aach et al. 2023, Table 2: ResNet-101 at 512 GPUs native and at 1024 GPUs DALI share two cells; AMD "
    "Primus' validation table repeats one",
)
def repeated_cells(material: Material) -> Findings:
    """No two rows of a measured table share two cells to the last digit.

    Shares with four digits do not agree by chance; somebody copied a row and changed half of it.
    """
    for _, rows in groups(material["shares"], ["table"]):
        for first, other in combinations(shares(rows), 2):
            fine = rows[(rows[first] * rows[other]).abs() > 0]
            same = fine[fine.duplicated([first, other], keep=False)]
            for values, twins in same.groupby([first, other]):
                if all(len(f"{value:.6g}".replace(".", "").rstrip("0")) >= 3 for value in values):  # 2 agree by chance
                    text = f"{first} {values[0]:g} and {other} {values[1]:g} stand in {len(twins)} rows"
                    yield Finding(ids(twins), text)


@rule(
    "warning",
    "shares.table",
    "show times, not shares, or say how the column was made",
    "Aach et al. 2023, Table 2: I/O is 0.67 to 0.71 of cuDNN with ResNet-50 and 0.49 to 0.51 with ResNet-101 "
    "and ResNet-152",
)
def multiple_columns(material: Material) -> Findings:
    """No measured column is a constant multiple of another.

    Either one was computed from the other, or both only say what a third one leaves; neither is a measurement of its
    own.
    """
    for what, rows in groups(material["shares"], ["table", "model"]):
        columns = [c for c in shares(rows) if (rows[c] > 0).all()]
        for first, other in combinations(columns if len(rows) >= 8 else (), 2):
            ratio = rows[first] / rows[other]
            varies = min(rows[c].max() / rows[c].min() for c in (first, other))
            away = (ratio - ratio.median()).abs().median()  # a few rows that were changed later do not move it
            if varies > 1.5 and away < 0.015 * ratio.median():
                text = f"{first} is {ratio.median():.3f} of {other} in {len(rows)} rows{in_(what)}"
                yield Finding(ids(rows), f"{text}, although both vary by more than a factor of {varies:.1f}")
