"""Columns of a table (CSV, JSON lines) that could be what a program counts, when, its loss and its
rate, each with what it reads and what supports it.

Names and shapes say what a column may be: a count grows, a time is a date or grows beside a name of
time. Each way to read them is tried by the reading itself, as patterns are (`candidates.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, product
from pathlib import Path

from ddlbench.commands.new.candidates import (
    EPOCH_NAME,
    LEAST,
    Candidate,
    distinct,
    names_rate,
    tried,
)
from ddlbench.core.program import COUNTS
from ddlbench.run.readings import Output, UnreadError, table

MOST_TRIED = 24
MOST_OF_ONE = 3  # columns that may be the same
STEP_NAME = re.compile(r"(?:^|[^a-z])(?:step|iter|iteration|it|batch|update)s?(?:$|[^a-z])", re.I)
SEEN_NAME = re.compile(
    r"(?:^|[^a-z])(?:seen|consumed|samples?|images?|tokens?|examples?|sequences?|patches)(?:$|[^a-z])",
    re.I,
)
TIME_NAME = re.compile(r"time|elapsed|(?:^|[^a-z])(?:date|sec|seconds|clock|ts)(?:$|[^a-z])", re.I)
DURATION_NAME = re.compile(r"_time$|time/|per_|eta|remaining|took|duration", re.I)
LOSS_NAME = re.compile(r"loss", re.I)
NOT_TRAINING = re.compile(r"val|eval|test", re.I)
SINCE_1970_S = (1e9, 4e9)  # and the same in ms


@dataclass(frozen=True)
class Column:
    """A column: its name, its values as numbers and as times [s], in the rows that have them."""

    name: str
    values: tuple[float, ...]
    times_s: tuple[float, ...]

    @property
    def whole(self) -> bool:
        """Return whether it has whole numbers only."""
        return bool(self.values) and all(value.is_integer() for value in self.values)

    @property
    def grows(self) -> bool:
        """Return whether it grows more often than it falls."""
        moved = [b - a for a, b in pairwise(self.values or self.times_s)]
        ups, downs = sum(one > 0 for one in moved), sum(one < 0 for one in moved)
        return ups > 0 and downs <= ups

    @property
    def by(self) -> float | None:
        """Return by how much it grows from row to row, if that is always the same."""
        moved = {b - a for a, b in pairwise(self.values)}
        return moved.pop() if len(moved) == 1 else None

    @property
    def is_time(self) -> bool:
        """Return whether it may say when a row was written: dates, seconds since 1970, or a name of
        time with numbers that never fall.
        """
        if len(self.times_s) < LEAST or any(b < a for a, b in pairwise(self.times_s)):
            return False
        dates = not self.values or all(
            SINCE_1970_S[0] < time_s < SINCE_1970_S[1] for time_s in self.times_s
        )
        return dates or bool(TIME_NAME.search(self.name) and self.grows)

    @property
    def is_count(self) -> bool:
        """Return whether it may count steps, epochs, of which parts may be told, or samples."""
        whole = self.whole or bool(EPOCH_NAME.search(self.name))
        return len(self.values) >= LEAST and whole and self.grows and not self.is_time


def columns_of(path: Path) -> list[Column]:
    """Return the columns of a table. Raises UnreadError."""
    rows = table.rows_of(path)
    found = []
    for name in dict.fromkeys(name for row in rows for name in row):
        said = [row[name] for row in rows if row.get(name) not in (None, "")]
        values = [table.value_of(one) for one in said]
        times = [table.seconds_of(one) for one in said]
        numbers = () if None in values else tuple(one for one in values if one is not None)
        found.append(Column(name, numbers, tuple(one for one in times if one is not None)))
    return found


def candidates(source: Output) -> list[Candidate]:
    """Return the ways to read the table that fit, those that something proves first, then those
    that are refused. Raises UnreadError where there is no table, or several, or no column that
    could be a count or a time.
    """
    program = source.spec.program
    assert program is not None
    path = source.newest(program.file) if program.file else table.only_table(source)
    file = program.file or path.name

    def way(columns: Mapping[str, str], unit: str) -> Candidate:
        keys = {"columns": columns} if program.file else {"file": file, "columns": columns}
        fields = {"file": file, "columns": tuple(columns.items())}
        return tried(source, "table", keys, unit, **fields)

    ways = islice(_ways(columns_of(path)), MOST_TRIED)
    found = [way(columns, unit) for unit, columns in ways]
    if all(one.refused for one in found):  # the names alone may do
        by_names = table.read(source).remarks["columns"]
        assert isinstance(by_names, dict)
        found.append(way(by_names, next(name for name in COUNTS if name in by_names)))
    return distinct(found)


def seen(source: Output) -> list[str]:
    """Describe the columns of the table, each with its shape; nothing where there is no table."""
    program = source.spec.program
    assert program is not None
    try:
        path = source.newest(program.file) if program.file else table.only_table(source)
        there = columns_of(path)
    except UnreadError:
        return []
    return [f"  {column.name}: {_shape(column)}" for column in there]


def _shape(column: Column) -> str:
    """Describe how a column moves."""
    if column.is_time:
        return "times" if column.values else "dates"
    if not column.values:
        return "words"
    if column.by is not None and column.by > 0:
        return f"grows by {column.by:g} a row"
    if len({*column.values}) == 1:
        return f"always {column.values[0]:g}"
    kind = "whole numbers" if column.whole else "numbers"
    return f"{kind}, {'growing, ' * column.grows}{min(column.values):g} to {max(column.values):g}"


def _ways(there: Sequence[Column]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield ways to read these columns, each with the unit of its count."""
    times = sorted(
        (one for one in there if one.is_time),
        key=lambda one: (bool(one.values), bool(DURATION_NAME.search(one.name))),
    )[:MOST_OF_ONE]
    losses = [one for one in there if LOSS_NAME.search(one.name) and one.values]
    losses = [one for one in losses if not NOT_TRAINING.search(one.name)][:MOST_OF_ONE]
    rate = next((one for one in there if one.values and names_rate(one.name)), None)
    epoch = next((one for one in there if one.is_count and EPOCH_NAME.search(one.name)), None)
    of_loss: list[Column | None] = [*losses] or [None]
    for time, (unit, count), loss in product(times, _counts(there), of_loss):
        columns = {unit: count.name, "time": time.name}
        if loss is not None:
            columns["loss"] = loss.name
        if epoch is not None and epoch is not count and min(_moves(count)) < 0:
            columns["epoch"] = epoch.name
        if rate is not None:
            yield unit, {**columns, "samples_per_s": rate.name}
        yield unit, columns


def _counts(there: Sequence[Column]) -> list[tuple[str, Column]]:
    """Return the columns that may count, each with a unit. Where the reading takes a column for the
    step by its name, only such are steps; of others those go first whose names say a count.
    """
    counts = [one for one in there if one.is_count]
    steps = [one for one in counts if re.fullmatch(table.NAMES["step"], one.name, re.I)]
    if steps:
        return [("step", one) for one in steps]
    named = [
        one
        for one in counts
        if any(name.search(one.name) for name in (STEP_NAME, SEEN_NAME, EPOCH_NAME))
    ]
    return [(unit, one) for one in named or counts for unit in _units(one)]


def _moves(column: Column) -> list[float]:
    return [b - a for a, b in pairwise(column.values)]


def _units(column: Column) -> list[str]:
    """Return what a count may be of: by its name, else all."""
    if EPOCH_NAME.search(column.name):
        return ["epoch"]
    if SEEN_NAME.search(column.name):
        return ["seen_all", "seen"]
    return ["step"] if STEP_NAME.search(column.name) else ["step", "seen_all"]
