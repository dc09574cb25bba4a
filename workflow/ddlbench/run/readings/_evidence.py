"""What other counters of the lines say about the steps: they confirm or contradict them.

All functions here are pure.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Sequence
from typing import Any

from ddlbench.core.spec import RunSpec
from ddlbench.run import log_text
from ddlbench.run.readings import _matches, _proof
from ddlbench.run.readings._matches import Match
from ddlbench.run.readings._values import Line, StepEnd, UnreadError

GLOBAL_BATCH = re.compile(r"(global|total)[ _]batch([ _]size)?$")
FEWEST_ALONE = 3  # steps between which no batch of a validation is counted
FEWEST_TOGETHER = 2  # times in a row that steps and batches of a validation grow by the same
MOST_UNEVEN = 0.01  # of the samples of a step: more shows that a counter counts something else


def evidence_of(
    of_steps: Sequence[Match], points: Sequence[StepEnd], spec: RunSpec
) -> dict[str, Any]:
    """Return fields of `_proof.Facts` that other numbers of the lines give."""
    if len(of_steps) != len(points) or len(of_steps) < 3:
        return {}
    evidence = _of_other_counters(of_steps, points)
    names = {_matches.counter_of(match) for match in of_steps}
    if names == {"step"}:
        steps = [point.step for point in points]
        of_one = [match.value("seen") for match in of_steps]
        of_all = [match.value("seen_all") for match in of_steps]
        evidence |= _proof.counted_samples(steps, of_one, of_all)
    if names in ({"seen"}, {"seen_all"}) and spec.global_batch > 1:
        evidence |= _of_counted_samples(of_steps, points, spec)
    return evidence


def check_validation(lines: Sequence[Line], of_steps: Sequence[Match]) -> None:
    """Raise UnreadError if the steps go on while batches of a validation are counted: bars of
    Lightning 1 count both.

    Where every line of a step has a count of a validation beside it, this may count the same.
    """
    counted = {id(match.line): match for match in of_steps if _matches.total_of(match)}
    told: list[tuple[Match, float | None]] = []
    batch: float | None = None
    for line in lines if counted else ():
        if id(line) in counted:
            told.append((counted[id(line)], batch))
            batch = None
        elif line.rank == of_steps[0].line.rank:
            batch = _validated(line) or batch
    if sum(batch is None for _, batch in told) < FEWEST_ALONE:
        return
    together = 0
    for (before, old), (match, new) in itertools.pairwise(told):
        steps = (match.value("step") or 0.0) - (before.value("step") or 0.0)
        grows = old is not None and new is not None and new - old == steps > 0
        together = together + 1 if grows else 0
        if together >= FEWEST_TOGETHER:
            raise UnreadError(
                f"its steps go on while it validates, to {match.value('step'):g} in"
                f" {match.found.text.strip()[:120]!r}: they count batches of the validation, too."
                " Let it print steps of the training alone, or use its logger's file"
            )


def _validated(line: Line) -> float | None:
    """Return how many batches of a validation a line counts; None of other lines."""
    text = log_text.plain(line.text)
    if not _matches.ELSE.search(text):
        return None
    return next((token.value for token in log_text.tokens(text) if token.total is not None), None)


def _of_other_counters(of_steps: Sequence[Match], points: Sequence[StepEnd]) -> dict[str, Any]:
    """Return what counters that no group reads say about samples and the global batch."""
    evidence: dict[str, Any] = {}
    moved = [b.step - a.step for a, b in itertools.pairwise(points)]
    for counter in log_text.counters([_without_step(match) for match in of_steps]):
        if not counter.whole:
            continue
        if log_text.SAMPLES.search(counter.label):
            pairs = zip(counter.differences(), moved, strict=True)
            per_step = [
                samples / steps for samples, steps in pairs if samples and samples > 0 and steps > 0
            ]
            enough = len(per_step) >= len(moved) / 2
            if enough and max(per_step) - min(per_step) <= MOST_UNEVEN * max(per_step):
                evidence["printed_samples_per_step"] = statistics.median(per_step)
        if GLOBAL_BATCH.search(counter.label) and len({*counter.values}) == 1:
            evidence["printed_batch"] = counter.values[0]
    return evidence


def _without_step(match: Match) -> str:
    """Return the text of a line with # in place of the number that says how far training is."""
    start, end = match.found.spans.get(_matches.counter_of(match) or "", (0, 0))
    return f"{match.found.text[:start]}#{match.found.text[end:]}"


def _of_counted_samples(
    of_steps: Sequence[Match], points: Sequence[StepEnd], spec: RunSpec
) -> dict[str, float | None]:
    """Return what lines that count samples, and no steps, confirm."""
    name = _matches.counter_of(of_steps[0]) or ""
    counts = [match.value(name) or 0.0 for match in of_steps]
    totals = {total for match in of_steps if (total := _matches.total_of(match))}
    called_so = _proof.called_samples(
        [match.found.text for match in of_steps], [match.found.spans[name] for match in of_steps]
    )
    batch = _matches.batch_of(name, spec)
    smaller_batch = any(
        point.step != count / batch for point, count in zip(points, counts, strict=True)
    )
    return _evidence_of_samples(
        counts, totals, spec, name == "seen_all", called_so or smaller_batch
    )


def _evidence_of_samples(
    counts: Sequence[float], totals: set[float], spec: RunSpec, of_all: bool, known: bool
) -> dict[str, float | None]:
    """Return what a count of samples confirms.

    They may be steps that are printed as often as a batch has samples, unless it is `known` by a
    word or by a smaller last batch. Of several ranks, a whole epoch must show whose they are.
    Raises UnreadError if they are those of others than the group says.
    """
    if spec.workers == 1:
        return (
            {"printed_samples_per_step": float(spec.global_batch)}
            if known
            else _declared(totals, spec)
        )
    falls = any(b < a for a, b in itertools.pairwise(counts))
    if not falls or len(totals) != 1:
        return {}
    (total,), high = totals, max(counts)
    declared = spec.program.samples_per_epoch if spec.program else None
    per_rank = abs(high - total / spec.workers) <= 0.15 * total / spec.workers
    if declared == total and of_all == per_rank:
        whose = (
            "one rank's: (?P<seen>...)"
            if of_all
            else "those of all ranks, (?P<seen_all>...), or each trains on all"
        )
        raise UnreadError(
            f"an epoch counts to {high:g} of {total:g} on {spec.workers} ranks: these are samples"
            f" of {whose}"
        )
    if of_all and per_rank:
        raise UnreadError(
            f"an epoch counts to {high:g} of {total:g} on {spec.workers} ranks: {high:g} are the"
            " samples of one rank; name the group (?P<seen>...)"
        )
    return {"printed_samples_per_epoch": total} if per_rank or declared == total else {}


def _declared(totals: set[float], spec: RunSpec) -> dict[str, float | None]:
    """Return the samples of an epoch that it prints, if the program's file says the same."""
    declared = spec.program.samples_per_epoch if spec.program else None
    return {"printed_samples_per_epoch": declared} if totals == {declared} else {}
