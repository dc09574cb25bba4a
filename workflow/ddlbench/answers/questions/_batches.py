"""Series of runs over batches, and which batches lose accuracy in them: for the question about
batches, and for others that take none that loses.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ddlbench.analysis import together
from ddlbench.analysis.over_settings import Pooled
from ddlbench.analysis.together import by_repeat
from ddlbench.answers import LOSS, Given
from ddlbench.answers.questions import _series


def losing(given: Given, alike: pd.DataFrame) -> set[tuple[str, int]]:
    """Return the batches, each with its schedule, that lose accuracy significantly in trainings
    like these, which share their model and settings.
    """
    learned = together.rows_like(given.with_top1, alike.iloc[0], ("model", *_series.SAME))
    return {
        (str(series["schedule"].iloc[0]), size)
        for series in all_series(learned)
        for size in lost(differences(given, by_size(series)))
    }


def all_series(learned: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the runs of each series over batches: those of one model, setting and schedule."""
    return [
        part
        for same in _series.with_most_values(learned, "global_batch")
        for _, part in same.groupby("schedule")
        if part["global_batch"].nunique() > 1
    ]


def by_size(series: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """Return the runs of each batch, the smallest first."""
    return {int(str(size)): part for size, part in series.groupby("global_batch")}


def differences(given: Given, parts: Mapping[int, pd.DataFrame]) -> dict[int, Pooled]:
    """Return by how many points of top-1 each larger batch is above the smallest."""
    top1 = {size: by_repeat(part, "top1") for size, part in parts.items()}
    least, *larger = top1
    comparisons = given.counted_comparisons(len(larger))
    return {size: _series.difference_in_points(top1, size, least, comparisons) for size in larger}


def lost(differences: Mapping[int, Pooled]) -> list[int]:
    """Return the batches that lose more than a point, significantly."""
    return [
        size
        for size, seen in differences.items()
        if seen.verdict < 0 and seen.high is not None and seen.high < -LOSS
    ]
