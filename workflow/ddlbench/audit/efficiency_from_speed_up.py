"""A speed-up and an efficiency of the same runs agree: E = S * ref / G."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ddlbench.analysis.scaling import efficiency as formula
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import RELATIONS, apart, pairs

SEVERITY = "error"
NEEDS = ("numbers.quantity", "numbers.value", "numbers.workers")
WHAT_TO_DO = "find out which of the two is wrong"
SOURCE = "Aach et al. 2023: 234 times from 4 to 1024 GPUs is 0.91, printed beside 0.76"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each pair that contradicts itself; a base that is not named is 1."""
    for speed_up, efficiency in pairs(material["numbers"], "speed-up", "efficiency"):
        ref = next((r["ref_workers"] for r in (speed_up, efficiency) if r.get("ref_workers", math.nan) > 0), 1)
        implied = formula(speed_up["value"], ref, speed_up["workers"])
        if apart(implied, efficiency):
            relation = RELATIONS[efficiency["relation"]]
            said = f"speed-up {speed_up['value']:g} at {speed_up['workers']:g} workers, base {ref:g}, "
            said += f"is efficiency {implied:.2f}"
            yield Finding((speed_up["row"], efficiency["row"]), f"{said}; said is {relation}{efficiency['value']:g}")
