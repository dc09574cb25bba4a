"""No two rows of a measured table share two cells to the last digit.

Shares with four digits do not agree by chance; somebody copied a row and changed half of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids

SEVERITY = "warning"
NEEDS = ("shares.table",)
WHAT_TO_DO = "ask the authors which of the two rows was measured"
SOURCE = (
    "Aach et al. 2023, Table 2: ResNet-101 at 512 GPUs native and at 1024 GPUs DALI share two cells; AMD "
    "Primus' validation table repeats one"
)
DIGITS = 3  # numbers of two digits agree by chance


def check(material: Material) -> Iterator[Finding]:
    """A finding for each pair of cells that stands more than once."""
    for _, rows in groups(material["shares"], ["table"]):
        columns = [c for c in rows if str(c).endswith("_percent") and rows[c].notna().any()]
        for one, other in combinations(columns, 2):
            fine = rows[(rows[one] * rows[other]).abs() > 0]
            same = fine[fine.duplicated([one, other], keep=False)]
            for values, twins in same.groupby([one, other]):
                if all(len(f"{value:.6g}".replace(".", "").rstrip("0")) >= DIGITS for value in values):
                    yield Finding(
                        ids(twins), f"{one} {values[0]:g} and {other} {values[1]:g} stand in {len(twins)} rows"
                    )
