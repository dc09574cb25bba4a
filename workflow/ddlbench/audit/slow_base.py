"""The base reaches at least half of what its hardware can: of the synthetic loader's rate, or of a ceiling that is
given.

A slow base flatters every efficiency above it: what waits for data hides its communication.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids

SEVERITY = "warning"
NEEDS = ("numbers.base_images_per_s", "numbers.quantity")
WHAT_TO_DO = "say the base's share of the ceiling beside the efficiency, and show throughput, too"
SOURCE = (
    "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rules 1 and 11; Aach et al. 2023, whose 4 GPUs "
    "make 616 to 667 images/s each where others make 2729 on the same machine"
)
LEAST = 0.5


def check(material: Material) -> Iterator[Finding]:
    """A finding for each slow base."""
    numbers = material["numbers"]
    relative = numbers[numbers["quantity"].isin(["speed-up", "efficiency"])]
    for _, rows in groups(relative, [*COMPARED, "source", "batch_per_worker", "ref_workers"]):
        known = rows["ceiling_images_per_s"].max() if "ceiling_images_per_s" in rows else math.nan
        synthetic = rows.loc[rows["loader"] == "synthetic", "base_images_per_s"].max() if "loader" in rows else math.nan
        ceiling, of = (known, "the ceiling") if known == known else (synthetic, "the synthetic loader")
        for _, slow in rows[rows["base_images_per_s"] < LEAST * ceiling].groupby("base_images_per_s"):
            rate = float(slow["base_images_per_s"].iloc[0])
            said = f"the base makes {rate:.0f} images/s, {of} {ceiling:.0f}: a share of {rate / ceiling:.2f}"
            yield Finding(ids(slow), said)
