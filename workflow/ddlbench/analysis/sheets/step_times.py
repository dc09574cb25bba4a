"""Table `step_times`: the parts of a step."""

from ddlbench.analysis import times
from ddlbench.analysis.sheets import Sheet

SHEET = Sheet(
    "One row per timed run: the median of each part of a step, after warm-up.",
    times.MEDIANS,
    place=40,
)
