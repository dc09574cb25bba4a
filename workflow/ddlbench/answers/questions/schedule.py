"""Which schedule: the one that reaches most, with the batch that is taken; and each larger batch
where it differs.
"""

from __future__ import annotations

from statistics import median

import pandas as pd

from ddlbench.analysis.over_settings import Pooled
from ddlbench.analysis.together import by_repeat
from ddlbench.answers import LOSS, Also, Answer, Candidate, Certainty, Choice, Fact, Given, ratio_of
from ddlbench.answers.questions import _series

PLACE = 60
DECIDES = ("schedule",)


def answer(given: Given, choice: Choice) -> Answer | None:
    """Return the schedule to take where nothing else differs."""
    learned, also = given.with_top1, ("workers", "global_batch")
    at_choice = learned[learned["global_batch"] == choice.batch] if choice.batch else learned[:0]
    taken = _series.with_most_values(at_choice, "schedule", also)
    found = [
        _answer_of_group(given, same)
        for same in taken or _series.with_most_values(learned, "schedule", also)
    ]
    if not found:
        return None
    model = found[0].fact("rates").values["where"].model  # type: ignore[union-attr]
    of_model = learned[learned["model"] == model]
    by_batch = [
        _answer_of_group(given, same)
        for size, part in of_model.groupby("global_batch")
        if size != choice.batch
        for same in _series.with_most_values(part, "schedule", also)[:1]
    ]
    return Answer(
        **{**vars(found[0]), "also": tuple(_also(one) for one in [*by_batch, *found[1:]])}
    )


def _also(answer: Answer) -> Also:
    fact = answer.fact("rates")
    assert fact and answer.taken and answer.over
    over = answer.over
    return Also(
        fact.values["where"],
        answer.taken,
        over.against,
        over.middle,
        over.low,
        over.high,
        over.n,
        over.verdict,
    )


def _answer_of_group(given: Given, group: pd.DataFrame) -> Answer:
    parts = {str(name): part for name, part in group.groupby("schedule")}
    top1 = {name: by_repeat(part, "top1") for name, part in parts.items()}
    best, *others = sorted(top1, key=lambda name: -median(top1[name].values()))
    differences: dict[str, Pooled] = {
        name: _series.difference_in_points(top1, best, name, given.counted_comparisons(len(others)))
        for name in others
    }
    named = {name: Candidate(schedule=name) for name in top1}
    pooled_differences = {
        name: ratio_of(seen, named[best], named[name], of_logs=False)
        for name, seen in differences.items()
    }
    level = [name for name in others if pooled_differences[name].verdict < 1]
    few = any(over.low is None for over in pooled_differences.values())
    alike = all(
        over.low is not None and over.high is not None and over.low > -LOSS and over.high < LOSS
        for over in (pooled_differences[name] for name in level)
    )
    certainty = Certainty.AHEAD if level else Certainty.SURE
    if few:
        certainty = Certainty.FEW
    elif level and alike:
        certainty = Certainty.TIE
    rows = [
        _series.row(given, named[name], part, "top1", name == best) for name, part in parts.items()
    ]
    where = _series.candidate(group.iloc[0], "model", "framework", "loader", "workers", "batch")
    rates = tuple((row.candidate, row.middle) for row in sorted(rows, key=lambda row: -row.middle))
    return Answer(
        question="schedule",
        rule="accuracy",
        certainty=certainty,
        taken=named[best],
        among=tuple(named.values()),
        as_good=tuple(named[name] for name in level),
        over=pooled_differences[(level or others)[0]],
        measure="top-1",
        unit="%",
        rows=tuple(sorted(rows, key=lambda row: -row.middle)),
        why=(Fact("rates", {"where": where, "rates": rates}),),
        runs=tuple(group["run"].astype(str)),
        open=tuple(
            str(run) for name in (best, *level) if level and not alike for run in parts[name]["run"]
        ),
    )
