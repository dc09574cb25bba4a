"""How large a batch: the largest that does not cost more than a point of top-1 beside the
smallest.
"""

from __future__ import annotations

import pandas as pd

from ddlbench.analysis.together import by_repeat
from ddlbench.answers import (
    LOSS,
    Also,
    Answer,
    Candidate,
    Certainty,
    Choice,
    Fact,
    Given,
    Note,
    Settles,
    ratio_of,
)
from ddlbench.answers.questions import _series

PLACE = 50
DECIDES = ("batch",)


def answer(given: Given, choice: Choice) -> Answer | None:
    """Return the batch to take, of the series with the most batches that reaches most; others are
    told beside it.
    """
    learned = given.with_top1
    series = [
        part
        for same in _series.with_most_values(learned, "global_batch")
        for _, part in same.groupby("schedule")
    ]
    answers = [
        _answer_of_series(given, part) for part in series if part["global_batch"].nunique() > 1
    ]
    if not answers:
        return None
    answers.sort(
        key=lambda one: (-len(one.rows), -max(row.middle for row in one.rows if row.taken))
    )
    first, *others = answers
    also = tuple(_also(one) for one in others)
    return Answer(**{**vars(first), "also": also})


def _also(answer: Answer) -> Also:
    (taken,) = (row for row in answer.rows if row.taken)
    (where,) = (fact.values["where"] for fact in answer.why if fact.name == "series")
    assert answer.taken
    return Also(
        where, answer.taken, answer.rows[0].candidate, taken.middle, taken.low, taken.high, taken.n
    )


def _answer_of_series(given: Given, series: pd.DataFrame) -> Answer:
    parts = {int(str(size)): part for size, part in series.groupby("global_batch")}
    top1 = {size: by_repeat(part, "top1") for size, part in parts.items()}
    least, *larger = top1
    differences = {
        size: _series.difference_in_points(
            top1, size, least, given.counted_comparisons(len(larger))
        )
        for size in larger
    }
    lost = [
        size
        for size, seen in differences.items()
        if seen.verdict < 0 and seen.high is not None and seen.high < -LOSS
    ]
    measured = [
        size for size, seen in differences.items() if seen.low is None and seen.middle < -LOSS
    ]  # one run each
    limit = min([*lost, *measured], default=None)
    # What is not shown to lose, and whose measured loss is no more than a point.
    kept = [
        size
        for size in larger
        if differences[size].middle >= -LOSS and (limit is None or size < limit)
    ]
    taken = max([least, *kept])
    unsaid = [size for size in larger if size not in lost and not _holds(differences[size])]
    few = min(len(values) for values in top1.values()) < 2
    open_ = [size for size in unsaid if size >= taken and (limit is None or size <= limit)]
    certainty = Certainty.FEW if few else Certainty.AHEAD if open_ else Certainty.SURE
    candidates = {size: Candidate(batch=size) for size in top1}
    rows = tuple(
        _series.row(
            given,
            candidates[size],
            part,
            "top1",
            size == taken,
            Note.LOSES if size in lost else None,
        )
        for size, part in parts.items()
    )
    first = series.iloc[0]
    facts = [
        Fact(
            "series",
            {"where": _series.candidate(first, "model", "schedule", "framework", "loader")},
        )
    ]
    if lost or measured:
        size = min([*lost, *measured])
        over = ratio_of(differences[size], candidates[size], candidates[least], of_logs=False)
        facts.append(
            Fact("loses", {"over": over, "larger too": size != larger[-1], "surely": size in lost})
        )
    return Answer(
        question="batch",
        rule="accuracy",
        certainty=certainty,
        taken=candidates[taken],
        among=tuple(candidates.values()),
        as_good=tuple(candidates[size] for size in open_ if size != taken),
        over=ratio_of(differences[taken], candidates[taken], candidates[least], of_logs=False)
        if taken != least
        else None,
        measure="top-1",
        unit="%",
        rows=rows,
        settles=_settles(series, [candidates[size] for size in open_]) if few or open_ else None,
        why=tuple(facts),
        runs=tuple(series["run"].astype(str)),
        open=tuple(str(run) for size in (least, *open_) if open_ for run in parts[size]["run"]),
    )


def _holds(seen: object) -> bool:
    """Return whether the interval of a difference excludes a loss of more than a point."""
    low = getattr(seen, "low", None)
    return low is not None and low > -LOSS


def _settles(series: pd.DataFrame, of: list[Candidate]) -> Settles:
    """Return what three more repeats of each batch take."""
    once_s = series.groupby(["global_batch", "workers"])["run_s"].median()
    workers = once_s.index.get_level_values("workers").to_numpy()
    repeats = 3
    runs_s, workers_s = repeats * float(once_s.sum()), repeats * float((once_s * workers).sum())
    return Settles(tuple(of), repeats, repeats * len(once_s), runs_s, workers_s)
