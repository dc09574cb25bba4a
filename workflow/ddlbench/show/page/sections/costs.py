"""What a training costs, with the interval between checkpoints that was chosen."""

from collections.abc import Sequence

from ddlbench.analysis.sheets.costs import CHOSEN, SHEET
from ddlbench.show.page import rows
from ddlbench.show.page.sections import Given, Section

READS = ("costs.parquet",)
# What the curve over intervals is for, and what the other columns say.
NOT_SHOWN = ("options", "interval", "between_s", "expected_s")


def tables(given: Given) -> Sequence[rows.PageTable]:
    costs = given.tables["costs"]
    chosen = costs[costs["interval"] == CHOSEN].dropna(axis="columns", how="all")
    columns = rows.meanings(SHEET.columns, *NOT_SHOWN)
    return [
        rows.plain("costs", "Costs", SHEET.means, chosen, columns, given.ids, "tables/costs.csv")
    ]


SECTION = Section(48, tables)
