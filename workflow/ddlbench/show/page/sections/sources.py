"""A source's own table on the pages of its studies: its cells, and what these runs say to each row.

`config/references/tables.yaml` has the cells. A claim that asks for hardware, data or models which
these runs have not is asked of what they have, and the cell says so: that is no verdict on the
source.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from ddlbench.analysis import claim_verdicts
from ddlbench.analysis.claims import Claim, read
from ddlbench.core.formatting import around, digits
from ddlbench.settings.config import CONFIG, read_yaml
from ddlbench.show.page.rows import Cell, PageTable, plain, runs_cell
from ddlbench.show.page.sections import Given, Section

READS: tuple[str, ...] = ()  # the tables that every page reads
FILE = CONFIG / "references/tables.yaml"
ELSEWHERE = (
    "dataset",
    "device",
    "gpu",
    "recipe",
    "model",
)  # conditions that small twins do not meet
Said = tuple[str, list[str]]  # what a cell says to a claim, and the runs that it rests on


def tables(
    study: str, data: Mapping[str, pd.DataFrame], page: Sequence[PageTable], ids: set[str]
) -> tuple[list[PageTable], list[PageTable]]:
    """Return the tables of this study's sources, and those of the `page` that are none of them."""
    given: list[Any] = [item for item in read_yaml(FILE)["tables"] if study in item["studies"]]
    taken = {item.get("table") for item in given}
    names = [row[-1] for item in given for row in item.get("rows", ())]
    said = _said(names, data) if names else {}
    found = [replace(table, folded=False) for item in given for table in _of(item, said, page, ids)]
    return found, [table for table in page if table.id not in taken]


def _of(
    item: Mapping[str, Any],
    said: Mapping[str, Said],
    page: Sequence[PageTable],
    ids: set[str],
) -> Iterator[PageTable]:
    if "rows" in item:
        heads = [*item["columns"], "these runs", "runs"]
        rows = []
        for *cells, name in item["rows"]:
            verdict, runs = said[name]
            rows.append(
                ("", (*(Cell(str(text)) for text in cells), Cell(verdict), runs_cell(runs, ids)))
            )
        means = "The source's cells, and whether these runs support them."
        yield PageTable(
            f"source-{item['rows'][0][-1]}",
            item["title"],
            means,
            tuple((h, "") for h in heads),
            tuple(rows),
        )
        return
    ours = [table for table in page if table.id == item["table"]]
    yield from (replace(table, title=item["title"]) for table in ours)
    if item.get("file") and not any(
        "published" in head for table in ours for head, _ in table.columns
    ):
        numbers = pd.read_csv(CONFIG / "references" / item["file"]).drop(columns="source")
        means = (
            "What the source prints. These runs have nothing to compare it with: they profiled no"
            " GPU."
        )
        yield plain(
            f"source-{item['table']}",
            item["title"],
            means,
            numbers,
            {str(name): "" for name in numbers},
            ids,
        )


def _said(names: Sequence[str], data: Mapping[str, pd.DataFrame]) -> dict[str, Said]:
    """Return, by id, the verdict on each of these claims, or on what is like it here, and the runs
    that it rests on.

    Claims are judged together with all others of the file, as table `verdicts` judges them: a claim
    judged alone may be decided where it is not among many.
    """
    claims = read(CONFIG / "references/claims.csv")
    rows = _judged(claims, data)
    untested = [claim for claim in claims if claim.id in names and not _was_tested(rows[claim.id])]
    rows_here = _judged([_like_it_here(claim) for claim in untested], data)
    as_claimed = {name: _cell(rows[name], "") for name in names if name not in rows_here}
    where = " on this hardware and model, which are not the source's"
    return as_claimed | {name: _cell(row, where) for name, row in rows_here.items()}


def _judged(claims: Sequence[Claim], data: Mapping[str, pd.DataFrame]) -> dict[str, dict[str, Any]]:
    table = claim_verdicts.verdicts(claims, data["runs"], data["kernels"])
    rows: list[Any] = table.to_dict("records")
    return {str(row["id"]): row for row in rows}


def _like_it_here(claim: Claim) -> Claim:
    left = {name: values for name, values in claim.left.items() if name not in ELSEWHERE}
    return replace(claim, left=left)


def _was_tested(row: Mapping[str, Any]) -> bool:
    return bool(row["verdict"] != claim_verdicts.NOT_TESTABLE)


def _cell(row: Mapping[str, Any], where: str) -> Said:
    if not _was_tested(row):
        return f"{row['verdict']}: {row['why']}", []
    measured = f"{around(row['measured'], row['low'], row['high'], digits)}, {row['n']:.0f} repeats"
    return f"{row['verdict']}{where}: {row['claim']}: {measured}", str(row["runs"]).split()


def _first(given: Given, page: Sequence[PageTable]) -> tuple[list[PageTable], list[PageTable]]:
    return tables(given.study.name, given.tables, page, given.ids)


SECTION = Section(0, first=_first)
