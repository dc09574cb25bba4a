"""mllog: MLPerf's log lines, printed by the program or in a file of its folder.

Progress is what events say of it: a number of steps, or `samples_count`, or epochs of
`train_samples`. Their own `time_ms` is when it was. Blocks say what is still to come when they
start, and evaluations count samples of their own: only what is told while training counts. A
process that began anew after another one leaves a second `run_start`: the last one counts.
"""

import itertools
import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddlbench.core.files import opened
from ddlbench.core.mllog import Event, events, read_log
from ddlbench.core.spec import RunSpec
from ddlbench.run.readings import Evaluation, Output, Reading, StepEnd, UnreadError, reading

MARK = re.compile(":::MLL")
LOSSES = ("train_loss", "loss")
# What events count, in the order in which it is believed, and the names of the counts.
COUNTS = {
    "steps": ("step_num",),
    "samples": ("samples_count",),
    "epochs": ("epoch_num", "first_epoch_num"),
}


def wanted(spec: RunSpec) -> list[re.Pattern[str]]:
    """Return the pattern of MLPerf's lines."""
    return [MARK]


def read(source: Output) -> Reading:
    """Return the steps between marks of progress.

    Raises UnreadError if fewer than two events say how far training was.
    """
    log = list(events(line.text for line in source.lines if MARK.search(line.text)))
    for path in () if log else sorted(source.files("*")):
        if _is_text(path):
            log += read_log(path)
    log = _last_run(log)
    said = [_number(e.value) for e in log if e.key == "global_batch_size"]
    batch = next((size for size in said if size and size > 0 and size == int(size)), None)
    samples = next(
        (_number(e.value) for e in log if e.key == "train_samples" and _number(e.value)), None
    )
    declared = source.spec.program.samples_per_epoch if source.spec.program else None
    points, unit = _points(log, batch or source.spec.global_batch, declared or samples)
    if len(points) < 2:
        raise UnreadError(
            f"{len(log)} MLPerf log lines, and {len(points)} that give the progress of training:"
            " step_num, samples_count, or epoch_num and train_samples (key samples_per_epoch)"
        )
    scores = [
        (event.time_s, _accuracy(event.value)) for event in log if event.key == "eval_accuracy"
    ]
    if any(top1 is None for _, top1 in scores) or _is_a_loss(
        [top1 for _, top1 in scores if top1 is not None]
    ):
        scores = []  # it is no accuracy: some benchmarks score by a loss, or in other units
    evaluations = [Evaluation(at_s, top1) for at_s, top1 in scores if top1 is not None]
    paused = [
        event.time_s for event in log if event.key in ("eval_start", "eval_stop", "eval_accuracy")
    ]
    evidence: dict[str, Any] = {"printed_batch": batch}
    if unit == "epochs":
        evidence["printed_samples_per_epoch"] = samples
    told = {event.metadata.get("step") or event.metadata.get("step_num") for event in log}
    if unit == "samples" and len(told - {None, 0}) > 1:
        evidence["printed_samples_per_step"] = _samples_per_step(log)
    run = reading(
        source, points, evaluations, paused_s=paused, counts_samples=unit == "samples", **evidence
    )
    run.remarks["counts"] = unit
    return run


def _last_run(log: list[Event]) -> list[Event]:
    """Return the events from the last start of a run on, and what was said of it before: several
    processes may have written one after the other. Starts of several ranks at about the same time
    are one.
    """
    starts = [n for n, event in enumerate(log) if event.key == "run_start"]
    stops = [n for n, event in enumerate(log) if event.key == "run_stop"]
    again = [n for n in starts if any(stop < n for stop in stops)]
    return log[: starts[0]] + log[again[-1] :] if again else log


def _number(value: object) -> float | None:
    """Return a number, also one that was written as text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _points(
    log: Sequence[Event], batch: int | float, epoch_samples: float | None
) -> tuple[list[StepEnd], str]:
    """Return the ends of steps, and what their events count: the first way of COUNTS in which at
    least two do.
    """
    for unit, names in COUNTS.items():
        points: list[StepEnd] = []
        validates = False
        for event in sorted(log, key=lambda event: event.time_s):
            if event.key in ("eval_start", "eval_stop"):
                validates = event.key == "eval_start"
            count = next(
                (n for name in names if (n := _number(event.metadata.get(name))) is not None), None
            )
            if (
                count is None
                or count < 0
                or event.key.startswith("eval_")
                or not _is_done(event, unit)
            ):
                continue
            if validates and event.key not in LOSSES:
                continue
            if unit == "epochs" and epoch_samples is None:
                break
            step = count / batch if unit == "samples" else count
            if unit == "epochs":
                step = (count - (event.key == "epoch_start")) * (epoch_samples or 0.0) / batch
            points.append(StepEnd(event.time_s, round(step), _loss(event)))
        if len({point.step for point in points}) > 1:
            return points, unit
    return [], ""


def _is_done(event: Event, unit: str) -> bool:
    """Return whether what an event counts is done by then: a block's start says its target, a
    training's its first step.
    """
    if event.key in ("block_start", "epoch_start"):
        return unit == "epochs" and event.key == "epoch_start"
    if unit == "epochs":
        return event.key in ("epoch_stop", "block_stop")
    return True


def _samples_per_step(log: Sequence[Event]) -> float | None:
    """Return by how many samples its events grow with each step."""
    both = []
    for event in log:
        samples = _number(event.metadata.get("samples_count"))
        step = _number(event.metadata.get("step_num", event.metadata.get("step")))
        if samples is not None and step and event.key != "block_start":
            both.append((step, samples))
    grown = [
        (b[1] - a[1]) / (b[0] - a[0])
        for a, b in itertools.pairwise(sorted(set(both)))
        if b[0] > a[0]
    ]
    return statistics.median(grown) if grown else None


def _loss(event: Event) -> float | None:
    """Return the loss that an event says, None if none."""
    if event.key in LOSSES:
        return event.value if isinstance(event.value, int | float) else None
    if event.key == "tracked_stats" and isinstance(event.value, dict):
        return next(
            (
                event.value[name]
                for name in LOSSES
                if isinstance(event.value.get(name), int | float)
            ),
            None,
        )
    return None


def _is_a_loss(scores: Sequence[float]) -> bool:
    """Return whether scores are those of a loss: they fall all the time. Accuracies of a training
    rise.
    """
    return (
        len(scores) > 1
        and scores[-1] < scores[0]
        and all(b <= a for a, b in itertools.pairwise(scores))
    )


def _is_text(path: Path) -> bool:
    """Tell whether it may be a log: checkpoints of many gigabytes may lie beside it."""
    with opened(path) as file:
        return b"\0" not in file.read(1 << 16)


def _accuracy(value: object) -> float | None:
    value = value.get("accuracy") if isinstance(value, dict) else value
    return float(value) if isinstance(value, int | float) and 0 <= value <= 1 else None
