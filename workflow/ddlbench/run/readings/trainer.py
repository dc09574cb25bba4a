"""trainer: the Hugging Face Trainer's `trainer_state.json`, the newest in the program's folder.

The file says steps and losses, and no times. Times come from the lines that the Trainer prints as
it logs, one for each entry; both say the same loss and epoch, by which they are matched: lines may
stand there twice, and the state that was saved last may be older than the end. The Trainer counts
samples, so that ranks which train each for itself, and would look twice as fast, are refused.
"""

import json
import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddlbench.core.files import read_bytes
from ddlbench.core.spec import RunSpec
from ddlbench.run.readings import (
    Evaluation,
    Line,
    Output,
    Reading,
    StepEnd,
    UnreadError,
    as_fractions,
    reading,
    share,
)

LOSS = re.compile(r"\{'loss': ")
EVALUATION = re.compile(r"\{'eval_\w+': ")
NAME = "trainer_state.json"
FAR = 0.1  # the Trainer rounds, and an epoch's last batch may be smaller


def wanted(spec: RunSpec) -> list[re.Pattern[str]]:
    """Return the pattern of what the Trainer prints as it logs."""
    return [LOSS, EVALUATION]


def read(source: Output) -> Reading:
    """Return the steps that the Trainer logged. Raises UnreadError without a file, or without
    entries in it.
    """
    path = source.newest(NAME)
    try:
        state = json.loads(read_bytes(path))
        log = [entry for entry in state["log_history"] if "loss" in entry and "step" in entry]
        evaluated = [
            entry for entry in state["log_history"] if "eval_loss" in entry and "step" in entry
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadError(f"{path}: cannot be read ({error!r})") from None
    if not log:
        raise UnreadError(f"{path}: has no entry with a loss in log_history: lower logging_steps")
    first = min((line.rank for line in source.lines if LOSS.search(line.text)), default=0)
    printed = [line for line in source.lines if LOSS.search(line.text) and line.rank == first]
    stamps = _matched(log, printed)
    if len(stamps) < 2:
        raise UnreadError(
            f"{path}: {len(log)} entries with a loss, and {len(printed)} printed, of which"
            f" {len(stamps)} are the same: these have the times"
        )
    per_epoch = _per_epoch(log)
    points = [
        StepEnd(stamps[n], entry["step"], entry.get("loss"), entry.get("learning_rate"))
        for n, entry in enumerate(log)
        if n in stamps
    ]
    if len(stamps) < len(log):
        print(
            f"{len(log) - len(stamps)} of {len(log)} entries have no line with the same loss: their"
            " times are means"
        )
    program = source.spec.program
    assert program is not None
    told = [line for line in source.lines if EVALUATION.search(line.text) and line.rank == first]
    ended = _matched(evaluated, told)
    evaluations = [
        Evaluation(
            ended[n] if n in ended else _between(points, entry["step"]),
            entry.get("eval_accuracy"),
            entry["eval_loss"],
        )
        for n, entry in enumerate(evaluated)
    ]
    evaluations = as_fractions(evaluations, program.top1_in)
    said = _check_batch(source.spec, path, state, per_epoch)
    run = reading(source, points, evaluations, paused_s=[e.time_s for e in evaluations], **said)
    return _smaller_last_batches(run, source.spec, log[0]["step"], state, per_epoch)


def _matched(log: Sequence[dict[str, Any]], printed: Sequence[Line]) -> dict[int, float]:
    """Return the time of each entry whose line is there, by its place; the first line of an entry
    counts, and of an entry that was trained again after an interruption the last try's.
    """
    lines = [_entry(line.text) for line in printed]
    stamps: dict[int, float] = {}
    limit = len(printed)
    for n in range(len(log) - 1, -1, -1):  # from the end: what was trained again was printed last
        place = next((at for at in range(limit - 1, -1, -1) if _same(log[n], lines[at])), None)
        if place is None:
            continue
        while place > 0 and lines[place - 1] == lines[place]:  # printed twice
            place -= 1
        stamps[n], limit = printed[place].time_s, place
    return dict(sorted(stamps.items()))


def _between(points: Sequence[StepEnd], step: float) -> float:
    """Return the time between the points around the end of a step [s since 1970]."""
    before = [point.time_s for point in points if point.step <= step]
    after = [point.time_s for point in points if point.step > step]
    return statistics.mean([*before[-1:], *after[:1]])


def _entry(text: str) -> dict[str, float]:
    """Return the numbers of a line that the Trainer printed."""
    pairs = re.findall(r"'(\w+)': '?([-+.\deE]+|nan|inf)'?", text)
    return {
        name: float(number)
        for name, number in pairs
        if re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?|nan|inf", number)
    }


def _same(entry: dict[str, Any], line: dict[str, float]) -> bool:
    """Return whether a line says what the entry does, as far as both say it; it may round."""
    shared = [
        name
        for name in ("loss", "eval_loss", "epoch", "grad_norm", "learning_rate")
        if name in entry and name in line
    ]
    return bool({"loss", "eval_loss"} & {*shared}) and all(
        math.isclose(
            float(entry[name]), line[name], rel_tol=2e-3, abs_tol=6e-3 if name == "epoch" else 1e-12
        )
        or (math.isnan(float(entry[name])) and math.isnan(line[name]))
        for name in shared
    )


def _per_epoch(log: Sequence[dict[str, Any]]) -> float | None:
    """Return the steps of an epoch by the entries' own epochs; None if they do not say them."""
    told = [entry["step"] / entry["epoch"] for entry in log if entry.get("epoch")]
    return statistics.median(told) if told else None


def _check_batch(
    spec: RunSpec, path: Path, state: dict[str, Any], per_epoch: float | None
) -> dict[str, Any]:
    """Return what the Trainer's own count of samples confirms.

    Raises UnreadError if it counted others than it was told.

    The last batch of an epoch may be smaller: of small data sets a mean says little, so the size of
    an epoch is asked.
    """
    ends = [entry for entry in state["log_history"] if "train_samples_per_second" in entry]
    if not ends or not ends[-1].get("step"):
        return {}
    samples = ends[-1]["train_samples_per_second"] * ends[-1]["train_runtime"]
    counted, batch = samples / ends[-1]["step"], spec.global_batch
    least = batch * max(per_epoch - 1, 0.5) / per_epoch if per_epoch else batch
    if counted > (1 + FAR) * batch or counted < (1 - FAR) * min(least, batch):
        why = (
            f"in place of {batch}: its ranks train each for itself, or the command does not say the"
            " batch"
        )
        raise UnreadError(f"{path}: the Trainer counted {counted:.4g} samples per step {why}")
    if per_epoch and ends[-1].get("epoch"):
        return {
            "printed_samples_per_epoch": samples / ends[-1]["epoch"],
            "printed_steps_per_epoch": per_epoch,
        }
    return {"printed_batch": batch} if abs(counted - batch) <= FAR * batch else {}


def _smaller_last_batches(
    run: Reading, spec: RunSpec, first: int, state: dict[str, Any], per_epoch: float | None
) -> Reading:
    """Give the last step of each epoch the samples that it had, where the size of an epoch is
    known.
    """
    ends = [
        entry
        for entry in state["log_history"]
        if "train_samples_per_second" in entry and entry.get("epoch")
    ]
    steps = round(per_epoch) if per_epoch else 0
    if not ends or steps < 2 or abs(steps - (per_epoch or 0)) > 0.02 * steps:
        return run
    size = round(
        ends[-1]["train_samples_per_second"] * ends[-1]["train_runtime"] / ends[-1]["epoch"]
    )
    rest = size - (steps - 1) * spec.global_batch
    if not 0 < rest < spec.global_batch:
        return run
    run.rows = [
        (
            row._replace(images=share(rest, row.rank, spec.workers))
            if (first + row.step + 1) % steps == 0
            else row
        )
        for row in run.rows
    ]
    return run
