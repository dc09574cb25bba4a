"""lines: steps from lines that the program prints, by patterns with named groups.

Times are those at which the supervisor read the lines. What else stands in the same lines, such as
other counters, a rate or the time of a step, is compared with what was read, and contradicts or
confirms it.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ddlbench.core.program import COUNTS, Program
from ddlbench.core.spec import RunSpec
from ddlbench.run import log_text, trained_together
from ddlbench.run.readings import (
    Evaluation,
    Line,
    Output,
    Reading,
    StepEnd,
    UnreadError,
    _pauses,
    _proof,
    as_fractions,
    reading,
)

number = log_text.number
MOST_ROUNDED = 0.025  # of all that is counted: more makes a rate wrong
EVERY_LINE = re.compile("")
# Words of lines that programs print when they do something else than train.
ELSE = re.compile(
    r"(?<![a-z])(?:val(?:id(?:ation|at(?:e|ed|ing))?)?|eval(?:uation|uat(?:e|ed|ing))?|test(?:ing)?"
    r"|checkpoint(?:s|ing|ed)?|ckpts?|sav(?:e|ed|ing))(?![a-z])",
    re.I,
)


def wanted(spec: RunSpec) -> list[re.Pattern[str]]:
    """Return what every line matches: another pattern may be tried on them later."""
    return [EVERY_LINE]


def patterns_of(spec: RunSpec) -> list[re.Pattern[str]]:
    """Return the program's own patterns."""
    return [re.compile(pattern) for pattern in spec.program.patterns] if spec.program else []


@dataclass
class Match:
    """A match of a pattern in a line."""

    line: Line
    pattern: re.Pattern[str]
    found: log_text.Found

    def value(self, name: str) -> float | None:
        return self.found.values.get(name)


def read(source: Output) -> Reading:
    """Return the steps. Raises UnreadError, which names a pattern that did not match and a line
    that it did not match, or the numbers that contradict each other.
    """
    program, patterns = source.spec.program, patterns_of(source.spec)
    assert program is not None
    found = _found(source.lines, patterns)
    _check_workers(found, source.spec)
    of_steps = _of_steps(found, program)
    told = _told(of_steps, source.spec)
    says = (
        source.spec.workers if any(match.value("workers") is not None for match in found) else None
    )
    first = min((match.line.rank for match in of_steps), default=None)
    found = [match for match in found if first is None or match.line.rank == first]
    of_steps, others_s = _of_training(_of_steps(found, program))
    _check_units(of_steps, source.spec, program)
    points = _points(of_steps, found, source.spec, program)
    if not points:
        raise UnreadError(_unmatched(source, patterns, program))
    points = _with_step_times(points, of_steps, source.spec)
    evaluations, percent = _evaluations(found)
    counted = {id(match) for match in of_steps}
    paused_s = [m.line.time_s for m in found if _is_of_else(m) and id(m) not in counted]
    run = reading(
        source,
        points,
        as_fractions(evaluations, program.top1_in, percent),
        paused_s=sorted([*paused_s, *others_s]),
        hinted_s=_hints(source.lines, of_steps),
        step_s=_step_s(of_steps, points),
        **_evidence(of_steps, points, source.spec),
        printed_rates=as_one_rate([match.value("samples_per_s") for match in found]),
        rate_rounding=_rate_rounding(found),
        rate_of=_rate_of(found, program),
        counts_samples=source.spec.workers > 1
        and all(_counter_of(m) in ("seen", "seen_all") for m in of_steps),
    )
    run.told, run.says = told, says
    return run


def _found(lines: Sequence[Line], patterns: Sequence[re.Pattern[str]]) -> list[Match]:
    """Return the matches of all patterns, in the order of the lines."""
    found = []
    for line in lines:
        for text in log_text.pieces(line.text):
            for pattern in patterns:
                if one := log_text.find(pattern, text):
                    found.append(Match(line, pattern, one))
    return found


def _counts(match: Match, program: Program) -> bool:
    """Return whether a match shows how far training is."""
    names = {*match.pattern.groupindex}
    if program.steps_per_line and not {*COUNTS} & names:
        return "loss" in names and match.value("loss") is not None
    return any(
        match.value(name) is not None and math.isfinite(match.value(name) or 0.0) for name in COUNTS
    )


def _of_steps(found: Sequence[Match], program: Program) -> list[Match]:
    """Return the matches that show how far training is.

    A line of a validation or a pause says where it stands, too (`epoch 3: val loss 0.5`). That is
    no progress where other lines show it.
    """
    counting = [match for match in found if _counts(match, program)]
    of_training = [match for match in counting if not _is_of_else(match)]
    return of_training if len(of_training) > 1 else counting


def _is_of_else(match: Match) -> bool:
    """Return whether the line is of something else than training."""
    return bool({"top1", "eval_loss", "pause"} & {*match.found.said})


def _check_workers(found: Sequence[Match], spec: RunSpec) -> None:
    """Raise UnreadError if a rank printed another number of ranks than the run has."""
    for match in found:
        if (workers := match.value("workers")) not in (None, spec.workers):
            alone = (
                f"rank {match.line.rank} printed {match.line.text.strip()[:200]!r}: {workers:g}"
                " workers instead of"
            )
            raise UnreadError(
                f"{alone} {spec.workers}; start its process group from RANK and WORLD_SIZE"
            )


def _told(of_steps: Sequence[Match], spec: RunSpec) -> dict[int, list[trained_together.Told]]:
    """Return the steps that each rank reported."""
    each = steps_per_number(spec.program) if spec.program else 1.0
    told: dict[int, list[trained_together.Told]] = {}
    for match in of_steps:
        name = _counter_of(match)
        count = match.value(name) if name else float(len(told.get(match.line.rank, [])))
        if name in ("seen", "seen_all") and count is not None:
            count /= _batch(name, spec)
        if name == "step" and count is not None:  # within a step ranks need not wait for each other
            count *= each
        step = (match.value("epoch"), count)
        of_rank = told.setdefault(match.line.rank, [])
        of_rank.append(trained_together.Told(step, match.line.time_s, match.found.said.get("loss")))
    return told


def _counter_of(match: Match) -> str | None:
    """Return the group that says how far training is; the first of COUNTS."""
    return next((name for name in COUNTS if match.value(name) is not None), None)


def _total(match: Match) -> float | None:
    """Return the total beside the count: that of group `of`, or what stands behind the number
    (`100/600`).
    """
    if match.value("of") is not None:
        return match.value("of")
    name = _counter_of(match)
    if name not in ("step", "seen", "seen_all"):
        return None
    return log_text.total_behind(match.found.text, match.found.spans[name][1])


def _of_training(matches: list[Match]) -> tuple[list[Match], list[float]]:
    """Return the lines of the training loop, and when lines of other loops were printed, such as
    bars of a validation: these have another total. Raises UnreadError where nobody can tell which
    is which.
    """
    totals = [_total(match) for match in matches]
    how_many = Counter(total for total in totals if total is not None)
    if len(how_many) < 2 or len(how_many) > len(matches) / 4:
        return matches, []
    most, _ = how_many.most_common(1)[0]
    main = {
        log_text.words_of(m.found.text)
        for m, total in zip(matches, totals, strict=True)
        if total == most
    }
    others = [
        (m, total) for m, total in zip(matches, totals, strict=True) if total not in (most, None)
    ]
    alike = next(
        ((m, total) for m, total in others if log_text.words_of(m.found.text) in main), None
    )
    if alike:
        text = alike[0].line.text.strip()[:120]
        raise UnreadError(
            f"it prints counts of {most:g} and of {alike[1]:g} in lines that look alike ({text!r}):"
            " which of them are about training? The pattern must contain a word of these lines"
        )
    kept = [m for m, total in zip(matches, totals, strict=True) if total in (most, None)]
    return kept, [m.line.time_s for m, _ in others]


def _check_units(of_steps: Sequence[Match], spec: RunSpec, program: Program) -> None:
    """Raise UnreadError where other numbers of the lines show that a group is of another unit."""
    for pattern in dict.fromkeys(match.pattern for match in of_steps):
        matches = [match for match in of_steps if match.pattern == pattern]
        name = _counter_of(matches[0])
        if name is None or (not program.steps_per_line and name == "epoch"):
            continue
        of_name = [match for match in matches if match.value(name) is not None]
        wrong = _proof.wrong_unit(
            name,
            [match.value(name) or 0.0 for match in of_name],
            [match.found.text for match in of_name],
            [match.found.spans[name] for match in of_name],
            spec.global_batch,
            spec.batch_per_worker,
            parts=program.parts_per_step,
            steps_per_epoch=program.steps_per_epoch,
            rounded=any(_is_rounded(match, name) for match in of_name),
        )
        wrong = wrong or too_coarse(
            [match.value(name) or 0.0 for match in of_name],
            [match.found.said[name] for match in of_name],
        )
        if wrong:
            raise UnreadError(f"pattern {pattern.pattern!r}: {wrong}")


def _is_rounded(match: Match, name: str) -> bool:
    return log_text.resolution(match.found.said[name]) > 1


def too_coarse(counts: Sequence[float], said: Sequence[str]) -> str | None:
    """Return why counts that are rounded to thousands or millions tell no rate; None if they do."""
    apart = max((log_text.resolution(text) for text in said), default=0.0)
    grown = sum(b - a for a, b in itertools.pairwise(counts) if b > a)
    if apart <= 1 or apart <= MOST_ROUNDED * grown:
        return None
    return (
        f"its numbers are rounded to {apart:g} ({said[-1].strip()!r}), and count to {grown:g} in"
        " all: too coarse for a rate. Let it print whole numbers, or run longer"
    )


def steps_per_number(program: Program) -> float:
    """Return how many steps one of the numbers stands for that the program calls steps."""
    return (program.steps_per_line or 1) / (program.parts_per_step or 1)


def epoch_steps(spec: RunSpec, program: Program) -> int | None:
    """Return the steps of an epoch as the program's file says them, or its samples of one."""
    if program.steps_per_epoch:
        return program.steps_per_epoch
    return -(-program.samples_per_epoch // spec.global_batch) if program.samples_per_epoch else None


def _points(
    of_steps: Sequence[Match], found: Sequence[Match], spec: RunSpec, program: Program
) -> list[StepEnd]:
    """Return the ends of steps in the order of their lines; a loss of a line of its own belongs to
    the step before.
    """
    seen = _seen(of_steps, spec)
    counted = {id(match) for match in of_steps}
    points: list[StepEnd] = []
    for match in found:
        if id(match) in counted:
            step, total = _step(match, len(points), seen, spec, program)
            rest = {name: match.value(name) for name in ("loss", "lr")}
            rest["samples"] = _samples(match, spec)
            epoch = match.value("epoch") if _counter_of(match) != "epoch" else None
            points.append(StepEnd(match.line.time_s, step, **rest, epoch=epoch, total=total))
        elif points and match.value("loss") is not None and not _is_of_else(match):
            points[-1] = points[-1]._replace(loss=match.value("loss"))
    return points


def _samples(match: Match, spec: RunSpec) -> float | None:
    """Return the samples of a step. Where they are rounded (`1.0k`) and the global batch is within
    it, it is the batch. Raises UnreadError if they are rounded by more than 5 %.
    """
    samples = match.value("samples")
    if samples is None or not _is_rounded(match, "samples"):
        return samples
    half = log_text.resolution(match.found.said["samples"]) / 2
    if abs(samples - spec.global_batch) <= half:
        return None
    if half > 0.05 * samples:
        raise UnreadError(
            f"pattern {match.pattern.pattern!r}: its samples of a step are rounded to"
            f" {2 * half:g} ({match.found.said['samples'].strip()!r}), and the batch is"
            f" {spec.global_batch}: leave the group samples out, or let it print whole numbers"
        )
    return samples


def _step(
    match: Match,
    lines: int,
    seen: dict[int, tuple[float, float | None]],
    spec: RunSpec,
    program: Program,
) -> tuple[float, float | None]:
    """Return how many steps a line says, and how many its epoch has if it says that."""
    name, total = _counter_of(match), _total(match)
    if id(match) in seen:
        return seen[id(match)]
    if name == "step":
        steps = steps_per_number(program)
        return (match.value("step") or 0.0) * steps, None if total is None else total * steps
    if name is None:
        assert program.steps_per_line
        return float((lines + 1) * program.steps_per_line), None
    per_epoch = epoch_steps(spec, program)
    if per_epoch is None:
        raise UnreadError(
            f"pattern {match.pattern.pattern!r}: (?P<{name}>...) needs the steps of an epoch: say"
            " steps_per_epoch, or samples_per_epoch"
        )
    if name == "epoch":
        return (match.value("epoch") or 0.0) * per_epoch, None
    share = match.value("percent") or 0.0
    share = share if match.found.said["percent"].strip().endswith("%") else share / 100
    return share * per_epoch, float(per_epoch)


def _seen(of_steps: Sequence[Match], spec: RunSpec) -> dict[int, tuple[float, float | None]]:
    """Return step and steps of an epoch of each line that counts samples.

    The last batch of an epoch may be smaller. Programs that print the number of a batch times its
    own size then say less than before: the number of that batch follows from the size of the epoch.
    """
    matches = [match for match in of_steps if _counter_of(match) in ("seen", "seen_all")]
    steps: dict[int, tuple[float, float | None]] = {}
    counts = [match.value(_counter_of(match) or "") or 0.0 for match in matches]
    before, low, high = 0.0, min(counts, default=0.0), max(counts, default=0.0)
    for place, match in enumerate(matches):
        name = _counter_of(match)
        assert name is not None
        batch = _batch(name, spec)
        value, total = match.value(name) or 0.0, _total(match)
        of_one = name == "seen" and total is not None and high <= math.ceil(total / spec.workers)
        size = math.ceil(total / spec.workers) if of_one and total is not None else total
        per_epoch = None if size is None else float(math.ceil(size / batch))
        step = value / batch
        after = matches[place + 1].value(name) if place + 1 < len(matches) else None
        falls = low < value < before and (after is None or after <= value)
        if _is_rounded(match, name):
            step = value / batch
        elif value % batch and size is not None and value in (size, total):
            step = float(math.ceil(value / batch))
        elif falls:
            step = _last_of_epoch(value, before, batch, size, match)
        steps[id(match)] = (step, per_epoch)
        before = value
    return steps


def _last_of_epoch(
    value: float, before: float, batch: int, size: float | None, match: Match
) -> float:
    """Return the number of an epoch's last batch, of which a line says number times size.

    Raises UnreadError if that does not fit.
    """
    if size is not None:
        last = math.ceil(size / batch) - 1
        if value == last * (size - last * batch):
            return float(last)
    following = round(before / batch) + 1
    if not value % batch:
        return value / batch
    if value % following == 0 and value / following < batch:
        return float(following)
    raise UnreadError(
        f"line {match.line.text.strip()[:120]!r} counts {value:g} samples after {before:g}, in"
        f" batches of {batch}: it cannot be used"
    )


def _evaluations(found: Sequence[Match]) -> tuple[list[Evaluation], bool]:
    """Return validations, and whether their accuracies were printed with a sign of percent."""
    evaluations, percent = [], False
    for match in found:
        top1, loss = match.value("top1"), match.value("eval_loss")
        if top1 is not None or loss is not None:
            evaluations.append(
                Evaluation(match.line.time_s, top1, loss if loss and math.isfinite(loss) else None)
            )
            end = match.found.spans["top1"][1] if top1 is not None else 0
            if top1 is not None and match.found.said["top1"].strip().endswith("%"):
                percent = True
            elif top1 is not None and match.found.text[end:].lstrip().startswith("%"):
                evaluations[-1] = evaluations[-1]._replace(top1=top1 / 100)
                percent = True
    return evaluations, percent


def as_one_rate(printed: Sequence[float | None]) -> tuple[float, ...]:
    """Return what the printed rates say as one: their median, and samples over time, where each
    line stands for as many. The first line is of time before the first interval.
    """
    told = [one for one in printed if one is not None and math.isfinite(one)]
    later = [one for one in told[1:] if one > 0]
    mean = (statistics.harmonic_mean(later),) if later else ()
    return (statistics.median(told), *mean) if told else ()


def _rate_rounding(found: Sequence[Match]) -> float:
    """Return by how much the printed rates may differ for their last digit."""
    said = [match.found.said.get("samples_per_s") for match in found]
    halves = [log_text.resolution(text) / 2 for text in said if text is not None]
    return statistics.median(halves) if halves else 0.0


def _rate_of(found: Sequence[Match], program: Program) -> str | None:
    """Return whose rate is printed: as the program's file says, or as words beside the number do.

    Raises UnreadError where they contradict each other.
    """
    rates = [match for match in found if match.value("samples_per_s") is not None]
    of_one = [
        match
        for match in rates
        if log_text.of_one_worker(match.found.text, match.found.spans["samples_per_s"])
    ]
    if not of_one:
        return program.rate_of
    if program.rate_of == "all":
        text = of_one[0].line.text.strip()[:120]
        raise UnreadError(
            f"rate_of says all, and the line says that the rate is one worker's: {text!r}"
        )
    return "worker"


def _clock(points: Sequence[StepEnd]) -> list[float | None]:
    """Return the time of a step between each point and the next [s]; None over an epoch's end."""
    return [
        (
            (b.time_s - a.time_s) / (b.step - a.step)
            if b.step > a.step and b.time_s > a.time_s
            else None
        )
        for a, b in itertools.pairwise(points)
    ]


def _step_s(of_steps: Sequence[Match], points: Sequence[StepEnd]) -> float | None:
    """Return how long a step takes by what its lines print; of several numbers the one that is next
    to the clock's, then one that differs by a whole factor all the time. None if none does.
    """
    clock = _clock(points)
    if len(of_steps) != len(points) or sum(one is not None for one in clock) < 2:
        return None
    usual = statistics.median(one for one in clock if one is not None)
    told = []
    for name, series in log_text.seconds_of_a_step([match.found.text for match in of_steps]):
        ratios = [
            s / c for s, c in zip(series[1:], clock, strict=True) if s is not None and c is not None
        ]
        if len(ratios) < max(2, len(points) / 4):
            continue
        ratio = statistics.median(ratios)
        steady = statistics.median(abs(one - ratio) for one in ratios) <= 0.07 * ratio
        if abs(ratio - 1) <= _proof.SAME or (
            steady and log_text.STEPS.search(name.replace("(t)", "").strip())
        ):
            told.append((abs(math.log(ratio)), ratio * usual))
    return min(told)[1] if told else None


def _with_step_times(
    points: list[StepEnd], of_steps: Sequence[Match], spec: RunSpec
) -> list[StepEnd]:
    """Return the points with the time of a step that their lines print: of several numbers the one
    that follows the clock best.
    """
    if len(of_steps) != len(points):
        return points
    clock = _clock(points)
    rates = [match.value("samples_per_s") for match in of_steps]
    series = [
        [
            (point.samples or spec.global_batch) / rate if rate and rate > 0 else None
            for point, rate in zip(points, rates, strict=True)
        ]
    ]
    texts = [match.found.text for match in of_steps]
    series += [told for _, told in log_text.seconds_of_a_step(texts)]
    best: tuple[float, list[float | None]] | None = None
    for told in series:
        ratios = [c / s for s, c in zip(told[1:], clock, strict=True) if s and c]
        if len(ratios) >= max(3, len(clock) / 2):
            apart = _pauses.follows(ratios)
            best = min(best or (apart, told), (apart, told), key=lambda one: one[0])
    if best is None:
        return points
    return [point._replace(step_s=step_s) for point, step_s in zip(points, best[1], strict=True)]


def _hints(lines: Sequence[Line], of_steps: Sequence[Match]) -> list[float]:
    """Return when the rank that tells the steps printed words of something else than training, in
    lines of their own.
    """
    if not of_steps:
        return []
    rank, counted = of_steps[0].line.rank, {id(match.line) for match in of_steps}
    return sorted(
        line.time_s
        for line in lines
        if line.rank == rank and id(line) not in counted and ELSE.search(log_text.plain(line.text))
    )


def _evidence(
    of_steps: Sequence[Match], points: Sequence[StepEnd], spec: RunSpec
) -> dict[str, Any]:
    """Return fields of `_proof.Facts` that other numbers of the lines give."""
    if len(of_steps) != len(points) or len(of_steps) < 3:
        return {}
    evidence: dict[str, Any] = {}
    moved = [b.step - a.step for a, b in itertools.pairwise(points)]
    names = {_counter_of(match) for match in of_steps}
    texts = []
    for match in of_steps:
        start, end = match.found.spans.get(_counter_of(match) or "", (0, 0))
        texts.append(f"{match.found.text[:start]}#{match.found.text[end:]}")
    for counter in log_text.counters(texts):
        if not counter.whole:
            continue
        if log_text.SAMPLES.search(counter.label):
            steps = [
                d / m
                for d, m in zip(counter.differences(), moved, strict=True)
                if d and d > 0 and m > 0
            ]
            if len(steps) >= len(moved) / 2 and max(steps) - min(steps) <= 0.01 * max(steps):
                evidence["printed_samples_per_step"] = statistics.median(steps)
        if (
            re.search(r"(global|total)[ _]batch([ _]size)?$", counter.label)
            and len({*counter.values}) == 1
        ):
            evidence["printed_batch"] = counter.values[0]
    if names == {"step"}:
        seen, seen_all = (
            [match.value(name) for match in of_steps] for name in ("seen", "seen_all")
        )
        evidence |= _proof.counted_samples([point.step for point in points], seen, seen_all)
    counts = [match.value("seen") for match in of_steps] if names == {"seen"} else []
    counts = [match.value("seen_all") for match in of_steps] if names == {"seen_all"} else counts
    totals = {total for match in of_steps if (total := _total(match))}
    if counts and spec.global_batch > 1:
        name = next(iter(names)) or ""
        known = _proof.called_samples(
            [m.found.text for m in of_steps], [m.found.spans[name] for m in of_steps]
        )
        batch = _batch(name, spec)
        known |= any(
            point.step != (value or 0.0) / batch
            for point, value in zip(points, counts, strict=True)
        )
        evidence |= _evidence_of_samples(
            [one or 0.0 for one in counts], totals, spec, names == {"seen_all"}, known
        )
    return evidence


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


def _batch(name: str, spec: RunSpec) -> int:
    """Return the samples of a step that a group counts."""
    return spec.global_batch if name == "seen_all" else spec.batch_per_worker


def _unmatched(source: Output, patterns: list[re.Pattern[str]], program: Program) -> str:
    steps = next((p.pattern for p in patterns if {*COUNTS} & {*p.groupindex}), "")
    last = next((text for text in reversed(source.last) if text.strip()), None)
    if last is None:
        return f"it printed nothing that pattern {steps!r} (key lines) could match"
    return f"pattern {steps!r} (key lines) did not match its last line: {last[:200]!r}"
