"""Table `refused`: records that cannot be believed."""

from ddlbench.analysis import refusals
from ddlbench.analysis.sheets import Sheet

SHEET = Sheet(
    "One row per record that cannot be true or read; it is in no other table.",
    refusals.COLUMNS,
    place=100,
    of_study=lambda _, gathered: sorted(
        gathered.refused, key=lambda row: (row["run"], row["file"])
    ),
)
