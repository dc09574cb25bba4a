"""Numbers that lines print become numbers of steps: steps, samples, epochs or percent of an epoch.

All functions here are pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ddlbench.core.program import Program
from ddlbench.core.spec import RunSpec
from ddlbench.run import log_text
from ddlbench.run.readings import _matches
from ddlbench.run.readings._matches import Match
from ddlbench.run.readings._values import StepEnd, UnreadError


def points_of(
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
            epoch = match.value("epoch") if _matches.counter_of(match) != "epoch" else None
            points.append(StepEnd(match.line.time_s, step, **rest, epoch=epoch, total=total))
        elif points and match.value("loss") is not None and not _matches.is_of_else(match):
            points[-1] = points[-1]._replace(loss=match.value("loss"))
    return points


def _samples(match: Match, spec: RunSpec) -> float | None:
    """Return the samples of a step. Where they are rounded (`1.0k`) and the global batch is within
    it, it is the batch. Raises UnreadError if they are rounded by more than 5 %.
    """
    samples = match.value("samples")
    if samples is None or not _matches.is_rounded(match, "samples"):
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
    name, total = _matches.counter_of(match), _matches.total_of(match)
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
    matches = [match for match in of_steps if _matches.counter_of(match) in ("seen", "seen_all")]
    steps: dict[int, tuple[float, float | None]] = {}
    counts = [match.value(_matches.counter_of(match) or "") or 0.0 for match in matches]
    before, low, high = 0.0, min(counts, default=0.0), max(counts, default=0.0)
    for place, match in enumerate(matches):
        name = _matches.counter_of(match)
        assert name is not None
        batch = _matches.batch_of(name, spec)
        value, total = match.value(name) or 0.0, _matches.total_of(match)
        of_one = name == "seen" and total is not None and high <= math.ceil(total / spec.workers)
        size = math.ceil(total / spec.workers) if of_one and total is not None else total
        per_epoch = None if size is None else float(math.ceil(size / batch))
        step = value / batch
        after = matches[place + 1].value(name) if place + 1 < len(matches) else None
        falls = low < value < before and (after is None or after <= value)
        if _matches.is_rounded(match, name):
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


def steps_per_number(program: Program) -> float:
    """Return how many steps one of the numbers stands for that the program calls steps."""
    return (program.steps_per_line or 1) / (program.parts_per_step or 1)


def steps_of_one(
    name: str, values: Sequence[float], said: str, spec: RunSpec, program: Program
) -> float | None:
    """Return how many steps one epoch or one percent has; None of numbers that are never rounded,
    such as those of whole epochs. A number that is said with a percent sign is a part of 1.
    """
    per_epoch = epoch_steps(spec, program)
    if per_epoch is None or name not in ("epoch", "percent"):
        return None
    if name == "percent":
        return per_epoch if said.strip().endswith("%") else per_epoch / 100
    return None if all(value.is_integer() for value in values) else per_epoch


def epoch_steps(spec: RunSpec, program: Program) -> int | None:
    """Return the steps of an epoch as the program's file says them, or its samples of one."""
    if program.steps_per_epoch:
        return program.steps_per_epoch
    return -(-program.samples_per_epoch // spec.global_batch) if program.samples_per_epoch else None
