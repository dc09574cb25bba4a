"""How wide a table's columns are: as their longest cell, as long as a line has room."""

from __future__ import annotations

from ddlbench.outlook.application import Table


def shares(table: Table, line: int) -> list[float]:
    """The share of a line of each column, where `line` characters fit into one; the longest give way first,
    and words of the header last."""
    count = len(table.header)
    rows = [table.header, *(row for row in table.rows if len(row) == count)]
    longest = [max(len(row[at]) for row in rows) + 2 for at in range(count)]
    least = [max(map(len, name.split()), default=0) + 2 for name in table.header]
    while sum(longest) > line:
        room = [length - words for length, words in zip(longest, least, strict=True)]
        at = max(range(count), key=lambda column: (room[column] > 0, longest[column]))
        longest[at] -= 1
    return [length / line for length in longest]
