"""What rules share: which runs are compared with each other, and what differs between those that
should be alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import pandas as pd

from ddlbench.analysis.significance import CANNOT_TELL, control_false_discoveries, ratio
from ddlbench.analysis.together import CELL, COMPARED, differing_with, words
from ddlbench.audit import Finding
from ddlbench.core.formatting import count_of
from ddlbench.core.registry import OWN


def present(table: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Return those of the columns that the table has and that are not null throughout."""
    return [name for name in columns if name in table and table[name].notna().any()]


def groups(table: pd.DataFrame, keys: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield (what the rows have in common, in words; the rows), by those of the keys that the table
    has.
    """
    keys = present(table, keys)
    if not keys:
        if len(table):
            yield "", table
        return
    for values, rows in table.groupby(keys, dropna=False, sort=True):
        yield words(keys, values if isinstance(values, tuple) else (values,)), rows


def row_names(rows: pd.DataFrame) -> list[str]:
    """Return the name of each row: a run's id, or what a number over workers is."""
    for column in ("run", "row"):
        if column in rows:
            return rows[column].astype("str").tolist()
    return [f"row {index}" for index in rows.index]


def ids(rows: pd.DataFrame) -> tuple[str, ...]:
    """Return the names of these rows for a finding, each once."""
    return tuple(dict.fromkeys(row_names(rows)))


def differing(
    table: pd.DataFrame, column: str, keys: Sequence[str], noun: str
) -> Iterator[Finding]:
    """Yield a finding for each group of rows, alike in `keys`, that differ in `column`; nulls are
    passed over.

    `noun` is what the column is called in the finding. The rarest value's runs come first.
    """
    keys = present(table, keys)
    table = table[table[column].notna()]
    if table.empty:
        return
    if keys:
        counted = table.groupby(keys, dropna=False)[column].transform("nunique")
        table = table[(counted > 1).to_numpy()]
    elif table[column].nunique() < 2:
        return
    for cell, rows in groups(table, keys):
        counts = rows[column].value_counts(sort=False).sort_index().sort_values(kind="stable")
        parts = [f"{short(value)} in {count_of(count, 'run')}" for value, count in counts.items()]
        more = [f"{len(parts) - 4} more values"] if len(parts) > 4 else []
        rarest_first = rows.iloc[rows[column].map(counts).argsort(kind="stable")]
        yield Finding(
            ids(rarest_first),
            f"{noun} differ{in_parentheses(cell)}: {', '.join([*parts[:4], *more])}",
        )


def differing_frameworks(
    runs: pd.DataFrame, column: str, noun: str, least: float
) -> Iterator[Finding]:
    """Yield a finding for each two frameworks that differ in a column of positive numbers:
    significantly, all pairs judged at once, and by more than the share `least`.

    Their runs share everything else. `noun` is what the column is called in the finding.
    """
    runs, pairs = runs[positive(runs[column])], []
    follows = differing_with("framework")
    for _, rows in groups(runs, [name for name in (*COMPARED, *CELL) if name not in follows]):
        columns = present(rows, ["model", "loader", "workers", "global_batch"])
        cell = words(columns, rows[columns].iloc[0])
        sides = [
            (name, side) for name, side in rows.groupby("framework") if side["repeat"].is_unique
        ]
        for (left, left_runs), (right, right_runs) in combinations(sides, 2):
            first, second = (
                dict(zip(side["repeat"], side[column], strict=True))
                for side in (left_runs, right_runs)
            )
            pairs.append(
                (cell, left, right, pd.concat([left_runs, right_runs]), ratio(first, second))
            )
    for (cell, left, right, rows, _), pair in zip(
        pairs, control_false_discoveries([one[-1] for one in pairs]), strict=True
    ):
        if pair.verdict != CANNOT_TELL and abs(math.log(pair.middle)) > math.log1p(least):
            text = f"{noun} of {left} is {pair.middle:.3g} times that of {right}"
            yield Finding(
                ids(rows),
                f"{text} ({pair.low:.3g} to {pair.high:.3g}, {pair.n} pairs){in_parentheses(cell)}",
            )


def in_parentheses(what: str) -> str:
    """Format ` (lenet, batch 64)`; return "" for ""."""
    return f" ({what})" if what else ""


def side_of(framework: str, loader: str) -> str:
    """Format `ddp with native`; a program has no loader of ours."""
    return framework if loader == OWN else f"{framework} with {loader}"


def short(value: Any) -> str:
    """Format a value for people: digests cut, numbers with six digits."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return f"{text[:12]}..." if len(text) == 64 and " " not in text else text


def finding_per_row(table: pd.DataFrame, bad: pd.Series[bool], template: str) -> Iterator[Finding]:
    """Yield a finding for each bad row; its text is `template`, filled with the row's columns."""
    rows = table[bad.astype("bool")]
    for row, name in zip(rows.to_dict("records"), row_names(rows), strict=True):
        yield Finding(
            (name,), template.format(**{str(key): short(value) for key, value in row.items()})
        )


def timed(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs whose speed means something: they are timed, and their rate is possible."""
    return runs[positive(runs["throughput_images_per_s"])]


def positive(values: pd.Series[Any]) -> pd.Series[bool]:
    """Return which values are finite numbers above 0."""
    return pd.to_numeric(values, errors="coerce").between(0, math.inf, inclusive="neither")
