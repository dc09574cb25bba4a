"""Table `failures`: what failed, and why."""

from ddlbench.analysis import failures
from ddlbench.analysis.sheets import Sheet

SHEET = Sheet(
    "One row per run, and per job of inference, that failed and left no record.",
    failures.COLUMNS,
    place=90,
    of_study=lambda _, gathered: failures.failures(
        [*gathered.folders, *gathered.planned.non_training]
    ),
)
