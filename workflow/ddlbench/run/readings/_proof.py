"""Is a reading right? What the steps, samples and times that were read agree with, or what
contradicts them.

`prove` and `wrong_unit` are pure: numbers in, a verdict out. A verdict is proved where something
else confirms both how many steps there were and how many samples a step has; contradicted, with
both numbers and the likely reason; or neither.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ddlbench.run import log_text

NEAR = 0.2  # a printed rate that differs by no more agrees with the clock's
FAR = 1.5  # by more than this factor it contradicts it
MOST_ROUNDED = 0.1  # of a printed rate: one that is rounded to more confirms nothing
SAME = 0.1  # times of a step agree within this
EXACT = 0.02  # counts agree within this
MOST_PER_LINE = 20  # steps that a line may stand for, if that explains a rate
MAY_BE_STEPS = "if they are steps, say"
PROVED, UNPROVED = "proved by", "read, not proved"
STEPS, SAMPLES = "steps", "samples"
RATE = "the rate that it prints"


@dataclass(frozen=True)
class Facts:
    """The facts that were read of a run, and what else is said of it; None where nobody says it.

    `steps`, `samples` and times are of what was read: `train_s` without pauses, `whole_s` with them
    [s]. `printed_*` stand in its lines: a rate [1/s] (`rate_rounding`: by how much it may differ
    for its last digit), a step's time [s], samples per step, the
    global batch, steps and samples of an epoch. `printed_of` tells whose samples per step these
    are: `all` or `worker`, if the file says so. `counts_samples`: its numbers are samples, of which
    steps were made. `steps_per_epoch` is what the epochs that were read have; `samples_per_epoch`
    and `rate_of` stand in the program's file. `by_construction` names a reading that cannot count
    otherwise.
    """

    steps: int
    samples: float
    train_s: float
    whole_s: float
    workers: int = 1
    global_batch: int = 1
    printed_rate: float | None = None
    rate_rounding: float = 0.0
    rate_of: str | None = None
    printed_step_s: float | None = None
    printed_samples_per_step: float | None = None
    printed_of: str | None = None
    printed_batch: float | None = None
    printed_steps_per_epoch: float | None = None
    printed_samples_per_epoch: float | None = None
    steps_per_epoch: float | None = None
    samples_per_epoch: float | None = None
    counts_samples: bool = False
    by_construction: str | None = None


@dataclass(frozen=True)
class Proof:
    """The proof of a reading: the evidence, what it confirms (STEPS, SAMPLES), and what contradicts
    it.
    """

    by: tuple[str, ...] = ()
    confirms: frozenset[str] = field(default_factory=frozenset)
    against: str | None = None

    @property
    def proved(self) -> bool:
        """Tell whether steps and samples are both confirmed, and nothing contradicts them."""
        return self.against is None and {STEPS, SAMPLES} <= self.confirms

    @property
    def text(self) -> str:
        """Return the record's words: `proved by its printed rate`, or `read, not proved`."""
        if self.against is not None:
            return f"contradicted: {self.against}"
        if self.proved:
            return f"{PROVED} {', '.join(self.by)}"
        return f"{UNPROVED} ({', '.join(self.by)} alone)" if self.by else UNPROVED


def prove(facts: Facts) -> Proof:
    """Return what confirms or contradicts what was read."""
    by: dict[str, set[str]] = {}
    if facts.by_construction:
        by[facts.by_construction] = {STEPS, SAMPLES}
    for check in (_rate, _step_time, _samples_per_step, _batch, _epoch):
        name, confirms, against = check(facts)
        if against is not None:
            return Proof(against=against)
        if name:
            by[name] = confirms
    return Proof(tuple(by), frozenset[str]().union(*by.values()))


Checked = tuple[str, set[str], str | None]
NOTHING: Checked = ("", set(), None)


def _near(a: float, b: float, by: float) -> bool:
    return abs(a - b) <= by * abs(b)


def nearest_rate(facts: Facts, rates: Sequence[float]) -> float | None:
    """Return the rate that is nearest to the clock's; None without one."""
    if not facts.train_s or not facts.samples or any(rate <= 0 for rate in rates):
        return rates[0] if rates else None
    clock = facts.samples / facts.train_s / (facts.workers if facts.rate_of == "worker" else 1)
    return min(rates, key=lambda rate: abs(math.log(rate / clock)), default=None)


def _rate(facts: Facts) -> Checked:
    """Compare the printed rate with the clock's: of all ranks, or of one rank where the file says
    so.

    If it is unknown whose rate it is, the rate does not prove steps: one rank's rate would agree
    even if too few steps were read.
    """
    printed = facts.printed_rate
    if printed is None or printed != printed or not facts.train_s or not facts.whole_s:
        return NOTHING
    rounding = facts.rate_rounding
    if facts.rate_of == "worker":
        printed, rounding = printed * facts.workers, rounding * facts.workers
    clocks = facts.samples / facts.train_s, facts.samples / facts.whole_s
    if rounding > MOST_ROUNDED * printed and (
        min(clocks) / FAR - rounding <= printed <= max(clocks) * FAR + rounding
    ):
        return NOTHING
    if min(clocks) * (1 - NEAR) <= printed <= max(clocks) * (1 + NEAR):
        is_told = facts.workers == 1 or facts.rate_of is not None
        return RATE, {STEPS, SAMPLES} if is_told else {SAMPLES}, None
    if min(clocks) / FAR <= printed <= max(clocks) * FAR:
        return NOTHING
    clock = clocks[0]
    ratio = clock / printed if printed else float("inf")
    of_one = facts.workers > 1 and _near(ratio, facts.workers, NEAR)
    if of_one and facts.rate_of is None and not facts.counts_samples:
        return NOTHING  # steps are steps: it may well be one worker's rate
    if of_one and facts.rate_of is None:
        reason = (
            "say rate_of: worker if that is one worker's rate; else its lines count the samples of"
            " all ranks"
        )
    elif any(_near(ratio, times, NEAR) for times in (1e3, 1e6, 1e9)):
        reason = "it may be in thousands (k) or millions (M): leave the group out"
    elif facts.steps and _near(printed, facts.steps / facts.train_s, NEAR):
        reason = "it prints steps per s: leave the group samples_per_s out"
    elif _near(ratio, facts.global_batch, NEAR) or _near(
        ratio, facts.global_batch / facts.workers, NEAR
    ):
        reason = "a batch's size lies between them: its lines count samples, not steps"
    elif _near(1 / ratio if ratio else 0.0, facts.global_batch, NEAR):
        reason = (
            "a batch's size lies between them: what was read are steps of fewer samples, or epochs"
        )
    elif (
        ratio
        and 2 <= (several := round(1 / ratio)) <= MOST_PER_LINE
        and _near(1 / ratio, several, SAME)
    ):
        reason = (
            f"each line may stand for several steps (steps_per_line: {several}), or its rate counts"
            " other samples"
        )
    else:
        reason = "its lines do not count steps, or its rate counts other samples (key sample)"
    return (
        "",
        set(),
        f"it prints a rate of {printed:.5g} per s, its timestamps give {clock:.5g}: {reason}",
    )


def _step_time(facts: Facts) -> Checked:
    """Compare the time of a step that it prints with the clock's."""
    printed, clock = facts.printed_step_s, facts.train_s / facts.steps if facts.steps else 0.0
    if not printed or not clock:
        return NOTHING
    if _near(printed, clock, SAME):
        return (
            "the time of a step that it prints",
            {STEPS, SAMPLES} if facts.counts_samples else {STEPS},
            None,
        )
    ratio = printed / clock
    for size, what in (
        (facts.workers, "as many as workers: its lines count the samples of all ranks (seen_all)"),
    ):
        if size > 1 and _near(ratio, size, SAME):
            numbers = f"it prints {printed:.4g} s a step, its timestamps give {clock:.4g}"
            return "", set(), f"{numbers}: {ratio:.3g} times, {what}"
    return NOTHING


def _samples_per_step(facts: Facts) -> Checked:
    """Compare a counter of samples in the same lines with the batch."""
    printed = facts.printed_samples_per_step
    if printed is None:
        return NOTHING
    if _near(printed, facts.global_batch, EXACT) and facts.printed_of != "worker":
        return "the samples that it counts", {STEPS, SAMPLES}, None
    if facts.printed_of != "all" and _near(printed * facts.workers, facts.global_batch, EXACT):
        return "the samples that each rank counts", {STEPS, SAMPLES}, None
    numbers = (
        f"its counter of samples grows by {printed:.6g} a step, the study says {facts.global_batch}"
    )
    return "", set(), f"{numbers}: these are not steps, or its batch is another one"


def _batch(facts: Facts) -> Checked:
    printed = facts.printed_batch
    if printed is None:
        return NOTHING
    if printed == facts.global_batch:
        return "the global batch that it prints", {SAMPLES}, None
    numbers = f"it prints a global batch of {printed:g}, the study says {facts.global_batch}"
    return "", set(), f"{numbers}: does the command say {{global_batch}} or {{batch_per_worker}}?"


def counted_samples(
    steps: Sequence[float], seen: Sequence[float | None], seen_all: Sequence[float | None]
) -> dict[str, Any]:
    """Return the evidence that counters of samples give beside steps: those of one rank, and those
    of all.
    """
    evidence: dict[str, Any] = {}
    for counts, whose in ((seen, "worker"), (seen_all, "all")):
        each = per_step(steps, counts)
        if each is not None:
            evidence = {"printed_samples_per_step": each, "printed_of": whose}
    return evidence


def per_step(steps: Sequence[float], counts: Sequence[float | None]) -> float | None:
    """Return by how much a counter grows with each step; None if it does not grow evenly.

    The last batch of an epoch may be smaller, and a counter may begin anew.
    """
    pairs = [
        (b[0] - a[0], b[1] - a[1])
        for a, b in itertools.pairwise(zip(steps, counts, strict=True))
        if a[1] is not None and b[1] is not None and b[0] > a[0] and b[1] > a[1]
    ]
    if len(pairs) < 2 or len(pairs) < (len(steps) - 1) / 2:
        return None
    each = statistics.median(grown / moved for moved, grown in pairs)
    mean = sum(grown for _, grown in pairs) / sum(moved for moved, _ in pairs)
    return each if _near(mean, each, EXACT) else None


def of_epoch(steps: float, wanted: float) -> bool:
    """Return whether so many steps are those of an epoch; a smaller last batch may count or not."""
    return abs(steps - wanted) <= 1 + EXACT * wanted


def _epoch(facts: Facts) -> Checked:
    """Compare the steps of an epoch with the samples of one."""
    declared = facts.samples_per_epoch or facts.printed_samples_per_epoch
    steps = facts.steps_per_epoch or facts.printed_steps_per_epoch
    if declared and steps:
        wanted = declared / facts.global_batch
        if of_epoch(steps, wanted):
            name = (
                "samples_per_epoch"
                if facts.samples_per_epoch
                else "the samples of an epoch that it prints"
            )
            return name, {STEPS, SAMPLES}, None
        if facts.samples_per_epoch:
            numbers = (
                f"an epoch has {steps:g} steps, and samples_per_epoch {declared:g} makes"
                f" {wanted:.5g}"
            )
            return (
                "",
                set(),
                (
                    f"{numbers} of {facts.global_batch}: these are not steps, or its batch is"
                    " another one"
                ),
            )
        return NOTHING
    if facts.printed_steps_per_epoch:
        return "its own count of an epoch", {STEPS}, None
    return NOTHING


def wrong_unit(
    name: str,
    values: Sequence[float],
    texts: Sequence[str],
    spans: Sequence[tuple[int, int]],
    batch: int,
    batch_per_worker: int,
    *,
    parts: int | None = None,
    steps_per_epoch: int | None = None,
    rounded: bool = False,
) -> str | None:
    """Return why the numbers of a group are of another unit than its `name` says (`step`, `seen`,
    ...); None if nothing contradicts it.

    `values` are the group's numbers, `texts` the lines that they stand in and `spans` where;
    `batch` is over all ranks. Where numbers are `rounded`, their distances show nothing. Other
    counters in the same lines, words and totals beside the numbers are looked at.
    """
    if len(values) < 3:
        return None
    words = statistics.mode(
        log_text.label(text[: span[0]]) for text, span in zip(texts, spans, strict=True)
    )
    totals = [log_text.total_behind(text, span[1]) for text, span in zip(texts, spans, strict=True)]
    total = totals[0] if totals and None not in totals and len(set(totals)) == 1 else None
    others = _others(texts, spans)
    behind = [text[span[1] :].lstrip() for text, span in zip(texts, spans, strict=True)]
    if name == "step" and all(rest.startswith("%") for rest in behind):
        return (
            "a sign of percent stands behind its numbers: (?P<percent>...) and steps_per_epoch read"
            " them"
        )
    if name == "step":
        return (
            _epochs_not_steps(values, words, others)
            or _samples_not_steps(
                values,
                words,
                total,
                texts,
                spans,
                () if rounded else (batch, batch_per_worker),
                steps_per_epoch,
            )
            or (_parts_not_steps(values, words, others) if parts is None else None)
        )
    if name in ("seen", "seen_all"):
        size = batch if name == "seen_all" else batch_per_worker
        return _not_samples(values, words, called_samples(texts, spans), 1 if rounded else size)
    return None


def _others(texts: Sequence[str], spans: Sequence[tuple[int, int]]) -> list[log_text.Counter]:
    """Return the counters of the lines but the one at the group's place."""
    others = []
    blanked = [
        f"{text[: span[0]]}#{text[span[1] :]}" for text, span in zip(texts, spans, strict=True)
    ]
    for counter in log_text.counters(blanked):
        if counter.whole:
            others.append(counter)
    return others


def _epochs_not_steps(
    values: Sequence[float], words: str, others: Sequence[log_text.Counter]
) -> str | None:
    """Return why these are epochs: they stay while another counter moves, or are called so."""
    pairs = [*itertools.pairwise(values)]
    still = [n for n, (a, b) in enumerate(pairs) if a == b]
    if len(still) >= len(pairs) / 2:
        for other in others:
            moves = other.differences()
            up = [n for n in still if (moves[n] or 0) > 0]
            if len(up) >= 0.4 * len(still) and (
                _has_total(other) or log_text.STEPS.search(other.label)
            ):
                of = next((total for total in other.totals if total is not None), None)
                each = (
                    f"{of:g} each by {other.name!r}" if of else f"{other.name!r} counts on in them"
                )
                count = len(set(values))
                numbers = f"it reads {count} different numbers in {len(values)} lines"
                return f"{numbers}: these are epochs: {count} of them, {each}"
    if log_text.EPOCHS.search(words):
        return (
            f"{words!r} stands before its numbers: these are epochs. (?P<epoch>...) and"
            " steps_per_epoch read them"
        )
    return None


def _has_total(counter: log_text.Counter) -> bool:
    return any(total is not None for total in counter.totals)


def _samples_not_steps(
    values: Sequence[float],
    words: str,
    total: float | None,
    texts: Sequence[str],
    spans: Sequence[tuple[int, int]],
    batches: Sequence[int],
    steps_per_epoch: int | None,
) -> str | None:
    """Return why these are samples: they grow by multiples of the batch, and nothing calls them
    steps.
    """
    behind = [text[span[1] : span[1] + 24] for text, span in zip(texts, spans, strict=True)]
    called = called_samples(texts, spans)
    if not called and (
        log_text.STEPS.search(words) or (steps_per_epoch is not None and total == steps_per_epoch)
    ):
        return None
    apart = {b - a for a, b in itertools.pairwise(values) if b > a}
    for batch in batches:
        if batch > 1 and apart and all(distance % batch == 0 for distance in apart):
            most = statistics.mode(b - a for a, b in itertools.pairwise(values) if b > a)
            of = f" of {total:g}" if total else ""
            numbers = (
                f"its numbers grow by {most:g} a line{of}, {most / batch:g} batches of {batch}"
            )
            told = "these are samples, read by (?P<seen>...) or (?P<seen_all>...)"
            say = (
                f"steps_per_epoch: {total:g}"
                if total
                else "steps_per_epoch, or let it print a word before them"
            )
            return f"{numbers}: {told}" + ("" if called else f"; {MAY_BE_STEPS} {say}")
    if called:
        return (
            f"they are called samples ({words or behind[0].strip()!r}): (?P<seen>...) or"
            " (?P<seen_all>...) reads them"
        )
    return None


def _after_total(rest: str) -> bool:
    """Return whether what stands right behind a number calls it samples: ` images`, `/60000
    samples`; a word before `:` or `=` is about the next number.
    """
    found = re.match(r"\s*(?:/\s*[\d,]+)?\s*([A-Za-z]+)(?![A-Za-z]|\s*[:=])", rest)
    return bool(found and log_text.SAMPLES.search(found[1]))


def _parts_not_steps(
    values: Sequence[float], words: str, others: Sequence[log_text.Counter]
) -> str | None:
    """Return why these are parts of a step: a counter that is called step moves more slowly."""
    moved = [b - a for a, b in itertools.pairwise(values)]
    for other in others:
        if not log_text.STEPS.search(other.label) or other.label == words:
            continue
        pairs = [
            (a, b)
            for a, b in zip(moved, other.differences(), strict=True)
            if b is not None and a > 0 and b > 0
        ]
        ratios = {round(a / b, 6) for a, b in pairs}
        if len(pairs) < 2 or len(ratios) != 1:
            continue
        ratio = ratios.pop()
        if ratio >= 2 and ratio == int(ratio):
            numbers = (
                f"{words or 'its number'!r} grows by {pairs[0][0]:g} a line, {other.label!r} by"
                f" {pairs[0][1]:g}"
            )
            return (
                f"{numbers}: these are parts of a step. Read {other.label!r}, or say"
                f" parts_per_step: {ratio:g}"
            )
    return None


def _not_samples(values: Sequence[float], words: str, called: bool, batch: int) -> str | None:
    """Return why these are no samples: they are called steps, or grow by no multiples of the
    batch.
    """
    apart = [b - a for a, b in itertools.pairwise(values) if b > a]
    odd = [distance for distance in apart if distance % batch]
    if log_text.STEPS.search(words) and not called:
        return f"{words!r} stands before its numbers: these are steps, read by (?P<step>...)"
    if len(odd) > len(apart) / 4:  # the last batch of an epoch may be smaller
        numbers = f"its numbers grow by {odd[0]:g} a line, a batch has {batch} samples"
        if any(value % 1 for value in values):
            return f"{numbers}: they have decimals, and may be in thousands or millions"
        return f"{numbers}: these are not samples, or its batch is another one"
    return None


def called_samples(texts: Sequence[str], spans: Sequence[tuple[int, int]]) -> bool:
    """Return whether words beside the numbers show that they count samples."""
    return all(
        log_text.SAMPLES.search(log_text.label(text[: span[0]]))
        or _after_total(text[span[1] : span[1] + 24])
        for text, span in zip(texts, spans, strict=True)
    )
