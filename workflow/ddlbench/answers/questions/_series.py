"""Runs over one axis of learning, such as batches or schedules, and accuracies told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import pandas as pd

from ddlbench.analysis import over_settings, together
from ddlbench.analysis.intervals import over_repeats
from ddlbench.analysis.over_settings import Pooled
from ddlbench.answers import Candidate, Certainty, Dot, Given, Note, Row
from ddlbench.core.registry import OWN
from ddlbench.core.roles import AXIS, EXTENT, SETTING

SAME = together.with_roles(SETTING, EXTENT, without=("model", "schedule"))
SIDES = together.with_roles(AXIS)
POINTS = 0.1  # of top-1 by which repeats differ at least
READ = (
    "run",
    "repeat",
    "model",
    "schedule",
    "workers",
    "global_batch",
    "top1",
    "peak",
    "run_s",
    "nodes",
    "loader",
    "machine",
)
# of the best top-1: what reaches less hardly learns, and says nothing of how the others vary
LEARNS = 0.5


def with_most_values(runs: pd.DataFrame, axis: str, also: Sequence[str] = ()) -> list[pd.DataFrame]:
    """Return the runs of one setting per model: the setting that has most values of the axis, if it
    has several. The model with the most runs comes first.

    With the batch usually the number of workers changes. So batches are compared only where several
    were trained on equally many workers, or where there are three of them.
    """
    found = []
    setting = [name for name in (*SIDES, *also) if name not in together.differing_with(axis)]
    if runs.empty:
        return []
    number = runs.groupby(["model", *SAME], dropna=False).ngroup()
    columns = dict.fromkeys(name for name in (*READ, *SIDES, *also) if name in runs)
    for _, of_model in runs[list(columns)].groupby(number):
        groups = (
            [part for _, part in of_model.groupby(setting, dropna=False)] if setting else [of_model]
        )
        if (
            axis == "global_batch"
        ):  # where a batch was trained on several numbers of workers, each alone
            mixed = [part["workers"].groupby(part[axis]).nunique().max() > 1 for part in groups]
            groups = [
                group
                for part, many in zip(groups, mixed, strict=True)
                for group in ([alike for _, alike in part.groupby("workers")] if many else [part])
            ]
            groups = [
                part
                for part in groups
                if part["workers"].nunique() == 1 or part[axis].nunique() > 2
            ]
        most = max(
            groups,
            key=lambda part: (part[axis].nunique(), part["workers"].max(), len(part)),
            default=None,
        )
        if most is not None and most[axis].nunique() > 1:
            found.append(most)
    return sorted(found, key=len, reverse=True)


def difference_in_points(
    values: Mapping[Any, Mapping[Any, float]], side: Any, other: Any, comparisons: float
) -> Pooled:
    """Return by how many points of top-1 a side is above the other, judged by the spread of all
    sides that learn.
    """
    best = max(median(top1.values()) for top1 in values.values())
    steady = [name for name, top1 in values.items() if median(top1.values()) >= LEARNS * best]
    return over_settings.unpaired(values, side, other, steady, comparisons, POINTS)


def row(
    given: Given,
    candidate: Candidate,
    runs: pd.DataFrame,
    measure: str,
    taken: bool = False,
    note: Note | None = None,
) -> Row:
    """Return the row of a measure of runs that differ in their repeat alone; of top-1 at most
    100.
    """
    values = runs[measure].astype("float64").tolist()
    seen = over_repeats(values)
    high = None if seen.high is None else min(seen.high, 100.0) if measure == "top1" else seen.high
    names = runs["run"].astype(str).tolist()
    dots = tuple(
        Dot(value, (run,), run in given.warned) for value, run in zip(values, names, strict=True)
    )
    return Row(candidate, seen.middle, seen.low, high, seen.n, 1, dots, taken, note)


def nodes(given: Given, runs: pd.DataFrame) -> int:
    """Return on how many nodes runs on equally many workers were; 0 where that is not known."""
    known = given.ours and "nodes" in runs and runs["nodes"].notna().all()
    return int(runs["nodes"].iloc[0]) if known else 0


def candidate(first: Any, *names: str) -> Candidate:
    """Return these settings of a run as a candidate; `framework` and `loader` by what they are
    called.
    """
    values: dict[str, Any] = {}
    for name in names:
        value = first["global_batch" if name == "batch" else name]
        if not pd.isna(value) and value != OWN:
            values[name] = int(value) if name in ("workers", "batch") else str(value)
    if "framework" in names and pd.isna(
        first["loader"]
    ):  # of records of others: submitter and system
        values.pop("framework", None)
        values["machine"] = str(first["machine"])
    return Candidate(**values)


def below(row: Row, other: Row) -> bool:
    """Return whether the interval of the row is entirely below that of the other."""
    return row.high is not None and other.low is not None and row.high < other.low


def certainty_of_least(rows: list[Row]) -> Certainty:
    """Return the certainty that the first row has the least value, from its interval and those of
    the others.
    """
    best, *others = rows
    if best.low is None:
        return Certainty.FEW
    return Certainty.SURE if all(below(best, row) for row in others) else Certainty.AHEAD
