"""Rates do not move with time beyond noise while a study is made.

A line through the logarithms of all timed runs' rates over their start, control runs among them, with a level of its
own for each cell of runs that differ in their repeat only.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddlbench.analysis import statistics
from ddlbench.analysis.together import CELL, COMPARED, is_control
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, ids, in_, present, timed

SEVERITY = "warning"
NEEDS = ("runs.throughput_images_per_s", "runs.started_s", "runs.repeat")
WHAT_TO_DO = (
    "look for what slows the machine with time (heat, other jobs, a full disk); mixed order keeps verdicts fair, but "
    "numbers from the two ends of the study are not one machine's"
)
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, section 4.1; docs/statistics.md, Drift"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each machine that drifts."""
    runs = timed(material.runs)
    for what, rows in groups(runs, ["machine"]):
        cells = rows.groupby(present(rows, [*COMPARED, *CELL]), dropna=False).ngroup()
        trend = statistics.drift(cells.tolist(), rows["started_s"], rows["throughput_images_per_s"])
        if trend is None or not trend.beyond_noise:
            continue
        percents = [f"{100 * (value - 1):+.1f}" for value in (trend.ratio, trend.low, trend.high)]
        hours = float(np.ptp(rows["started_s"])) / 3600
        controls = int(is_control(rows).sum())
        said = f"from the first to the last of {trend.n} runs, {hours:.2g} h, rates moved by {percents[0]} %"
        said += f" ({percents[1]} to {percents[2]} %)"
        yield Finding(ids(rows.sort_values("started_s")), f"{said}{in_(what)}; {controls} of them are control runs")
