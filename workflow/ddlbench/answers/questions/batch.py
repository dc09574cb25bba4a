"""How large a batch: the largest that does not cost more than a point of top-1 beside the
smallest.
"""

from __future__ import annotations

import math

import pandas as pd

from ddlbench.analysis.over_settings import Pooled
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
from ddlbench.answers.questions import _batches, _series

PLACE = 50
DECIDES = ("batch",)
MORE = 3  # repeats that are offered to settle it


def answer(given: Given, choice: Choice) -> Answer | None:
    """Return the batch to take, of the series with the most batches that reaches most; others are
    told beside it.
    """
    answers = [_answer_of_series(given, part) for part in _batches.all_series(given.with_top1)]
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
    parts = _batches.by_size(series)
    least, *larger = parts
    differences = _batches.differences(given, parts)
    lost = _batches.lost(differences)
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
    few = min(len(by_repeat(part, "top1")) for part in parts.values()) < 2
    open_ = [size for size in unsaid if size >= taken and (limit is None or size <= limit)]
    certainty = Certainty.FEW if few else Certainty.AHEAD if open_ else Certainty.SURE
    candidates = {size: Candidate(batch=size) for size in parts}
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
        above = [other for other in larger if other > size]
        facts.append(
            Fact(
                "loses",
                {
                    "over": over,
                    "larger too": bool(above) and {*above} <= {*lost, *measured},
                    "surely": size in lost,
                },
            )
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
        settles=_settles(given, [parts[size] for size in (least, *open_)]) if open_ else None,
        why=tuple(facts),
        runs=tuple(series["run"].astype(str)),
        open=tuple(str(run) for size in (least, *open_) if open_ for run in parts[size]["run"]),
    )


def _holds(seen: Pooled) -> bool:
    """Return whether the interval of a difference excludes a loss of more than a point."""
    return seen.low is not None and seen.low > -LOSS


def _settles(given: Given, parts: list[pd.DataFrame]) -> Settles:
    """Return what more repeats take of these batches: the smallest, and those that are undecided."""
    once_s = [float(part["run_s"].median()) for part in parts]
    workers = [int(part["workers"].iloc[0]) for part in parts]
    nodes = [_series.nodes(given, part) for part in parts]
    prices = [
        given.tariff.price(MORE * s / 3600, given.tariff.workers_blocked(count, on))
        for s, count, on in zip(once_s, workers, nodes, strict=True)
    ]
    return Settles(
        tuple(Candidate(batch=int(part["global_batch"].iloc[0])) for part in parts),
        MORE,
        MORE * len(parts),
        MORE * sum(once_s),
        MORE * sum(s * count for s, count in zip(once_s, workers, strict=True)),
        None if None in prices else math.fsum(value for value in prices if value is not None),
        given.tariff.currency,
    )
