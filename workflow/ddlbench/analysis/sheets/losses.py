"""Table `losses`: where the time of a training went."""

from ddlbench.analysis import losses
from ddlbench.analysis.sheets import Sheet

SHEET = Sheet(
    "One row per timed run: where the time of the training went, by the median worker of each step "
    "(`analysis/losses.py`). The parts add up to `total_s`.",
    losses.COLUMNS,
    place=50,
)
