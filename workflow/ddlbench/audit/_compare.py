"""What rules share: which runs are compared with each other, and what differs between those that should be alike."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from ddlbench.analysis.together import words
from ddlbench.audit import Finding
from ddlbench.core import registry
from ddlbench.core.plural import count_of

# What a published number is of.
PLACE = ("source", "model", "framework", "loader", "schedule", "global_batch", "workers")


def present(table: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Those of the columns that the table has and that are not null throughout."""
    return [name for name in columns if name in table and table[name].notna().any()]


def groups(table: pd.DataFrame, keys: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """(what the rows have in common, in words; the rows), by those of the keys that the table has."""
    keys = present(table, keys)
    if not keys:
        if len(table):
            yield "", table
        return
    for values, rows in table.groupby(keys, dropna=False, sort=True):
        yield words(keys, values if isinstance(values, tuple) else (values,)), rows


def ids(rows: pd.DataFrame) -> tuple[str, ...]:
    """What a finding names these rows by: run ids, or rows of a published table."""
    for column in ("run", "row"):
        if column in rows:
            return tuple(dict.fromkeys(rows[column].astype("str")))
    return tuple(f"row {index}" for index in rows.index)


def differing(table: pd.DataFrame, column: str, keys: Sequence[str], says: str) -> Iterator[Finding]:
    """A finding for each group of rows, alike in `keys`, that differ in `column`; nulls are passed over.

    `says` is what the column is, in words. The rarest value's runs come first.
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
    for what, rows in groups(table, keys):
        counts = rows[column].value_counts(sort=False).sort_index().sort_values(kind="stable")
        said = [f"{short(value)} in {count_of(count, 'run')}" for value, count in counts.items()]
        more = [f"{len(said) - 4} more values"] if len(said) > 4 else []
        rarest_first = rows.iloc[rows[column].map(counts).argsort(kind="stable")]
        yield Finding(ids(rarest_first), f"{says} differ{in_(what)}: {', '.join([*said[:4], *more])}")


def in_(what: str) -> str:
    """` (lenet, batch 64)`; nothing of nothing."""
    return f" ({what})" if what else ""


def short(value: Any) -> str:
    """A value as people read it: digests cut, numbers with six digits."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return f"{text[:12]}..." if len(text) == 64 and " " not in text else text


def each(table: pd.DataFrame, bad: pd.Series[bool], says: str) -> Iterator[Finding]:
    """A finding for each bad row; `says` is a format of the row's columns."""
    for row, name in zip(table[bad].to_dict("records"), ids_of_each(table[bad]), strict=True):
        values = {str(key): short(value) for key, value in row.items()}
        yield Finding((name,), says.format(**values))


def ids_of_each(rows: pd.DataFrame) -> list[str]:
    """The name of each row."""
    for column in ("run", "row"):
        if column in rows:
            return rows[column].astype("str").tolist()
    return [f"row {index}" for index in rows.index]


def timed(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs whose speed means something: they are timed, and their rate can be (`impossible_clocks.py`)."""
    return runs[positive(runs["throughput_images_per_s"])]


def positive(values: pd.Series[Any]) -> pd.Series[bool]:
    """Which values are finite numbers above 0."""
    return pd.to_numeric(values, errors="coerce").between(0, math.inf, inclusive="neither")


# How a published number is meant, and how it is written.
RELATIONS = {"approx": "", "above": "more than ", "below": "less than "}
ABOUT = 0.1  # two numbers that are `approx` may differ by this share of the larger one
_FITS = ("source_of", "model", "framework", "loader", "schedule", "global_batch", "workers")


def fitting(table: pd.DataFrame, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of published numbers that may be of the same runs as this one: nothing and `any` fit everything."""
    return [other for other in records(table) if all(fit(key, row.get(key), other.get(key)) for key in _FITS)]


def fit(key: str, one: Any, other: Any) -> bool:
    """Whether two values of a column can be of the same runs. `step|cosine` are two values."""
    if pd.isna(one) or pd.isna(other):
        return True
    if not isinstance(one, str):
        return bool(one == other)
    mine, others = (set(str(value).split("|")) for value in (one, other))
    if key == "loader":  # `dali` is what papers call both of DALI's
        same = {(a, b) for a in mine for b in others if a == b or registry.family(a) == b or registry.family(b) == a}
        return "any" in mine | others or bool(same)
    return "any" in mine | others or bool(mine & others)


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of published numbers, each with a relation and a name."""
    rows = table.to_dict("records")
    for row in rows:
        row.setdefault("relation", "approx")
        row.setdefault("row", "a number")
    return [{str(key): value for key, value in row.items()} for row in rows]


def pairs(numbers: pd.DataFrame, one: str, other: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Pairs of numbers of two quantities that may be of the same runs; of one quantity, each pair once.

    Numbers of our own runs say of which series they are; of published ones it is asked whether all that is said fits.
    """
    if "series" in numbers:
        keys = ["series", "workers"]
        left, right = (numbers[numbers["quantity"] == q] for q in (one, other))
        if one == other:
            return
        joined = left[[*keys, "row", "value"]].merge(right[[*keys, "row", "value", "ref_workers"]], on=keys)
        for both in records(joined):
            shared = {"workers": both["workers"], "ref_workers": both["ref_workers"], "relation": "approx"}
            first, second = ({"row": both[f"row_{x}"], "value": both[f"value_{x}"]} for x in "xy")
            yield shared | first, shared | second
        return
    mine = records(numbers[numbers["quantity"] == one])
    for place, row in enumerate(mine):
        if one == other:
            yield from ((row, later) for later in fitting(pd.DataFrame(mine[place + 1 :]), row))
        else:
            yield from ((row, found) for found in fitting(numbers[numbers["quantity"] == other], row))


def apart(value: float, said: Mapping[str, Any]) -> bool:
    """Whether a value that was computed contradicts a number as it was published."""
    return contradict({"relation": "approx", "value": value}, said)


def contradict(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two numbers of one thing cannot both hold."""
    kinds = {one["relation"]: one["value"], other["relation"]: other["value"]}
    if one["relation"] == other["relation"] != "approx":
        return False
    if {"above", "below"} == set(kinds):
        return bool(kinds["above"] >= kinds["below"])
    if "above" in kinds:
        return bool(kinds["approx"] < kinds["above"] * (1 - ABOUT / 2))
    if "below" in kinds:
        return bool(kinds["approx"] > kinds["below"] * (1 + ABOUT / 2))
    a, b = one["value"], other["value"]
    return bool(abs(a - b) > ABOUT * max(abs(a), abs(b)))
