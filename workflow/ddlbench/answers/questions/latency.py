"""Which way to ask a trained model: the one that answers the smallest request soonest."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ddlbench.analysis.intervals import over_repeats
from ddlbench.answers import Also, Answer, Candidate, Choice, Dot, Fact, Given, Row
from ddlbench.answers.questions import _series
from ddlbench.core import kinds

PLACE = 100
DECIDES: tuple[str, ...] = ()


def answer(given: Given, choice: Choice) -> Answer | None:
    """Return the way with the least median latency, of the first model; the other models are told
    beside it.
    """
    answers = [
        one
        for rule in kinds.non_training()
        for one in _answers_of_table(given, given.tables.get(rule.table, pd.DataFrame()))
    ]
    if not answers:
        return None
    first, *others = answers
    return Answer(**{**vars(first), "also": tuple(_also(one) for one in others)})


def _also(answer: Answer) -> Also:
    best, asked = answer.rows[0], answer.fact("asked")
    assert asked
    where = Candidate(model=asked.values["model"])
    second = answer.rows[1].candidate if len(answer.rows) > 1 else None
    return Also(where, best.candidate, second, best.middle, best.low, best.high, best.n)


def _answers_of_table(given: Given, table: pd.DataFrame) -> list[Answer]:
    answers = []
    for model, part in (
        table.dropna(subset=["latency_p50_s", "member"]).groupby("model") if len(table) else ()
    ):
        smallest = part[part["batch"] == part["batch"].min()]
        several = smallest.groupby("member")["workers"].transform("nunique") > 1
        named = smallest.assign(named_workers=smallest["workers"].where(several))
        rows = [
            _row(_candidate(str(way), workers), runs)
            for (way, workers), runs in named.groupby(["member", "named_workers"], dropna=False)
        ]
        rows.sort(key=lambda row: row.middle)
        rows = [Row(**{**vars(row), "taken": n == 0}) for n, row in enumerate(rows)]
        answers.append(
            Answer(
                question="latency",
                rule="soonest",
                certainty=_series.certainty_of_least(rows),
                taken=rows[0].candidate,
                among=tuple(row.candidate for row in rows),
                as_good=tuple(row.candidate for row in rows[1:] if not _series.below(rows[0], row)),
                measure="latency",
                unit="ms",
                rows=tuple(rows),
                why=(
                    Fact(
                        "asked", {"model": str(model), "pictures": int(smallest["batch"].iloc[0])}
                    ),
                ),
            )
        )
    return answers


def _candidate(way: str, workers: Any) -> Candidate:
    """Return a way to serve; with its number of workers, where it was tried with several."""
    return Candidate(way=way, workers=None if pd.isna(workers) else int(workers))


def _row(candidate: Candidate, runs: pd.DataFrame) -> Row:
    values = (1e3 * runs["latency_p50_s"].astype("float64")).tolist()
    seen = over_repeats(values)
    dots = tuple(Dot(value) for value in values)
    return Row(candidate, seen.middle, seen.low, seen.high, seen.n, 1, dots)
