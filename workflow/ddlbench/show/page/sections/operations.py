"""What DeepSpeed's profiler counts of each module."""

from collections.abc import Sequence

from ddlbench.analysis.sheets.operations import SHEET
from ddlbench.show.page import rows
from ddlbench.show.page.sections import Given, Section

READS = ("operations.parquet",)


def tables(given: Given) -> Sequence[rows.PageTable]:
    columns, table = rows.meanings(SHEET.columns), given.tables["operations"]
    file = "tables/operations.csv"
    return [
        rows.plain(
            "operations", "Operations by module", SHEET.means, table, columns, given.ids, file
        )
    ]


SECTION = Section(43, tables)
