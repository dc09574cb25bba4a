"""What a study says that compares nothing: its rates, or of runs without one their accuracy."""

from __future__ import annotations

import pandas as pd

from ddlbench.analysis.comparisons import varying_settings
from ddlbench.answers import Answer, Candidate, Certainty, Choice, Given
from ddlbench.answers.questions import _series

PLACE = 110  # asked where no other question about sides, workers or batches has an answer
DECIDES: tuple[str, ...] = ()
RATE = "throughput_images_per_s"
ROWS = 8


def answer(given: Given, choice: Choice) -> Answer | None:
    """Return the fastest setting, or the most accurate one, of a study that compares nothing; None
    of others.
    """
    if any(vars(choice).values()):
        return None
    runs, measure, unit = given.with_real_data, RATE, f"{given.sample}/s"
    if runs[RATE].isna().all():
        runs, measure, unit = given.with_top1, "top1", "%"
    runs = runs[runs[measure].notna()]
    if runs.empty:
        return None
    keys = [*_series.SIDES, "model", "workers", "global_batch", "schedule", *_series.SAME]
    groups = [part for _, part in runs.groupby(keys, dropna=False)]
    groups.sort(key=lambda part: -float(part[measure].median()))
    tell = [name for name in (*varying_settings(runs), "options") if runs[name].nunique() > 1]
    rows = [
        _series.row(given, _named(part, tell), part, measure, n == 0)
        for n, part in enumerate(groups)
    ]
    return Answer(
        question="rate",
        rule="measured",
        certainty=Certainty.FEW if rows[0].low is None else Certainty.SURE,
        taken=rows[0].candidate,
        among=tuple(row.candidate for row in rows),
        measure="rate" if measure == RATE else "top-1",
        unit=unit,
        rows=tuple(rows[:ROWS]),
        hidden=max(0, len(rows) - ROWS),
        runs=tuple(runs["run"].astype(str)),
    )


def _named(part: pd.DataFrame, varying: list[str]) -> Candidate:
    first = part.iloc[0]
    named = _series.candidate(first, "framework", "loader", "workers")
    more = tuple(
        (name, str(first[name]))
        for name in varying
        if not pd.isna(first[name]) and first[name] != ""
    )
    return Candidate(**{**vars(named), "more": more})
