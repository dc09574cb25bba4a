"""What lines print beside the step: validations, rates and times of a step.

All functions here are pure.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

from ddlbench.core.program import Program
from ddlbench.core.spec import RunSpec
from ddlbench.run import log_text
from ddlbench.run.readings import _pauses, _proof
from ddlbench.run.readings._matches import Match
from ddlbench.run.readings._values import Evaluation, StepEnd, UnreadError


def evaluations_of(found: Sequence[Match]) -> tuple[list[Evaluation], bool]:
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


def rate_rounding(found: Sequence[Match]) -> float:
    """Return by how much the printed rates may differ for their last digit."""
    said = [match.found.said.get("samples_per_s") for match in found]
    halves = [log_text.resolution(text) / 2 for text in said if text is not None]
    return statistics.median(halves) if halves else 0.0


def rate_of(found: Sequence[Match], program: Program) -> str | None:
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


def step_time(of_steps: Sequence[Match], points: Sequence[StepEnd]) -> float | None:
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


def with_step_times(
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
