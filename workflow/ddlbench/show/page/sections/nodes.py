"""What all records of the machine say of its hosts, where somebody has asked `ddlbench nodes`."""

from collections.abc import Sequence

import pandas as pd

from ddlbench.analysis.slow_nodes import COLUMNS
from ddlbench.show.page import rows
from ddlbench.show.page.sections import Given, Section

READS: tuple[str, ...] = ()  # it is the machine's file, not the study's


def tables(given: Given) -> Sequence[rows.PageTable]:
    machine, up = given.study.machine, given.study.up
    file = given.results / "machines" / machine / "nodes.csv"
    if not file.exists():
        return []
    means = f"Each host of {machine} compared with the others, by all its records."
    columns, address = rows.meanings(COLUMNS), f"{up}machines/{machine}/nodes.csv"
    return [rows.plain("nodes", "Hosts", means, pd.read_csv(file), columns, given.ids, address)]


SECTION = Section(110, tables)
