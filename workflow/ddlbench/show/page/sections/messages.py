"""What DeepSpeed's ranks sent each other."""

from collections.abc import Sequence

from ddlbench.analysis.sheets.messages import SHEET
from ddlbench.show.page import rows
from ddlbench.show.page.sections import Given, Section

READS = ("messages.parquet",)


def tables(given: Given) -> Sequence[rows.PageTable]:
    columns, table = rows.meanings(SHEET.columns), given.tables["messages"]
    return [
        rows.plain(
            "messages", "Messages", SHEET.means, table, columns, given.ids, "tables/messages.csv"
        )
    ]


SECTION = Section(46, tables)
