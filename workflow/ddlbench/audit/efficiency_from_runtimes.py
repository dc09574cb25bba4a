"""Runtimes and efficiencies of the same runs agree: E = T_ref / T_G * ref / G."""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.scaling import efficiency as formula
from ddlbench.analysis.scaling import speed_up
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import RELATIONS, apart, fitting, groups

SEVERITY = "error"
NEEDS = ("numbers.quantity", "numbers.value", "numbers.workers", "numbers.unit")
WHAT_TO_DO = "find out whether times and efficiencies are of the same runs"
SOURCE = "Aach et al. 2023: 13 h on 4 and 200 s on 1024 GPUs are 0.91, printed beside 0.76 and 0.68"
SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def check(material: Material) -> Iterator[Finding]:
    """A finding for each efficiency that the runtimes of the same model contradict."""
    numbers = material["numbers"]
    times = numbers[numbers["quantity"] == "runtime"]
    seconds = times["value"] * times["unit"].map(SECONDS).astype("float64")
    times = times.assign(s=seconds)[seconds.notna()]
    for _, rows in groups(times, ["source_of", "model", "framework", "loader"]):
        base = rows.sort_values("workers", kind="stable").iloc[0]
        for row in rows[rows["workers"] > base["workers"]].to_dict("records"):
            implied = formula(speed_up(base["s"], row["s"]), base["workers"], row["workers"])
            for other in fitting(numbers[numbers["quantity"] == "efficiency"], row):
                if apart(implied, other):
                    said = (
                        f"{base['value']:g} {base['unit']} on {base['workers']} and {row['value']:g} {row['unit']} on "
                    )
                    said += f"{row['workers']} workers are efficiency {implied:.2f}"
                    yield Finding(
                        (str(base["row"]), row["row"], other["row"]),
                        f"{said}; said is {RELATIONS[other['relation']]}{other['value']:g}",
                    )
