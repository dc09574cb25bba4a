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
    "loader",
    "machine",
)
# of the best top-1: what reaches less hardly learns, and says nothing of how the others vary
LEARNS = 0.5


def with_most(runs: pd.DataFrame, axis: str, also: Sequence[str] = ()) -> list[pd.DataFrame]:
    """Return of each model the runs of one setting: that with the most values of an axis, if these
    are several. The model with the most runs comes first.

    Numbers of workers follow batches. So a batch is asked of where several were trained on as many
    workers, or three.
    """
    found = []
    setting = [name for name in (*SIDES, *also) if name not in together.differing_with(axis)]
    if runs.empty:
        return []
    number = runs.groupby(["model", *SAME], dropna=False).ngroup()
    columns = dict.fromkeys(name for name in (*READ, *SIDES, *also) if name in runs)
    for _, same in runs[list(columns)].groupby(number):
        groups = [part for _, part in same.groupby(setting, dropna=False)] if setting else [same]
        if (
            axis == "global_batch"
        ):  # where a batch was trained on several numbers of workers, each alone
            mixed = [part["workers"].groupby(part[axis]).nunique().max() > 1 for part in groups]
            groups = [
                group
                for part, many in zip(groups, mixed, strict=True)
                for group in ([ours for _, ours in part.groupby("workers")] if many else [part])
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


def points(
    values: Mapping[Any, Mapping[Any, float]], ours: Any, theirs: Any, one_of: float
) -> Pooled:
    """Return by how many points of top-1 one is above the other, and the spread of the runs that
    learn.
    """
    best = max(median(side.values()) for side in values.values())
    steady = [name for name, side in values.items() if median(side.values()) >= LEARNS * best]
    return over_settings.unpaired(values, ours, theirs, steady, one_of, POINTS)


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


def below(ours: Row, theirs: Row) -> bool:
    """Return whether the interval of one row is entirely below that of the other."""
    return ours.high is not None and theirs.low is not None and ours.high < theirs.low


def of_intervals(rows: list[Row]) -> Certainty:
    """Return the certainty that the first row is the least, from its interval and those of the
    others.
    """
    best, *others = rows
    if best.low is None:
        return Certainty.FEW
    return Certainty.SURE if all(below(best, row) for row in others) else Certainty.AHEAD
