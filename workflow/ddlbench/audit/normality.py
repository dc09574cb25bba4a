"""Repeats do not contradict the normal distribution that intervals of up to 4 repeats assume.

Up to 4 repeats have Student's t intervals of the logarithms of their rates; beyond it nothing is assumed. Each cell of
3 or 4 repeats is tested by Shapiro and Wilk's test, and the cells' probabilities are joined by Fisher's method, because
3 values alone tell nearly nothing. Cells may differ in level and in spread.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddlbench.analysis.statistics import FEW
from ddlbench.analysis.together import CELL, COMPARED, is_control
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids, timed

SEVERITY = "warning"
NEEDS = ("runs.throughput_images_per_s", "runs.repeat")
WHAT_TO_DO = "look for what a part of the runs had and others had not (rules slow-repeat, same-hosts); make 6 repeats"
SOURCE = (
    "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 6 (do not assume normality without a test); Shapiro "
    "and Wilk 1965, Biometrika 52:591; Fisher 1932, Statistical Methods for Research Workers, section 21.1"
)
LEAST, RARE = 3, 0.01  # repeats that can be tested; less probable than this is no chance


def check(material: Material) -> Iterator[Finding]:
    """One finding for all cells of each machine."""
    from scipy import stats

    runs = timed(material.runs)
    for _, machine in groups(runs[~is_control(runs)], ["machine"]):
        tested, chances = [], []
        for _, rows in groups(machine, [*COMPARED, *CELL]):
            logs = np.log(rows["throughput_images_per_s"].to_numpy(dtype=np.float64))
            if LEAST <= len(logs) <= FEW and np.ptp(logs) > 0:
                chances.append(float(stats.shapiro(logs).pvalue))
                tested.append((chances[-1], rows))
        if not chances:
            continue
        joined = float(stats.combine_pvalues(np.clip(chances, 1e-12, 1.0), method="fisher").pvalue)
        if joined < RARE:
            tested.sort(key=lambda cell: cell[0])
            chance, rows = tested[0]
            said = f"the chance of {len(chances)} cells of normal logarithms to look like these is {joined:.1g}"
            yield Finding(ids(rows), f"{said}; of the cell that fits worst, which is named, {chance:.1g}")
