"""table: a CSV file or JSON lines that the program writes: key `file` names it, `columns` says
which column is what.

Without `columns`, a column is what its own name says: step, epoch, loss, lr, time. Times are those
of the file (seconds since 1970 or since the start, or dates); a file without them cannot be timed.
What the program counts is said by the same names as in lines: step, epoch, seen, seen_all.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ddlbench.core.program import COUNTS, Program
from ddlbench.core.spec import RunSpec
from ddlbench.run.log_text import number
from ddlbench.run.readings import (
    Evaluation,
    Output,
    Reading,
    StepEnd,
    UnreadError,
    as_fractions,
    reading,
)
from ddlbench.run.readings._matches import too_coarse
from ddlbench.run.readings._printed import as_one_rate
from ddlbench.run.readings._proof import counted_samples, per_step
from ddlbench.run.readings._step_numbers import epoch_steps, steps_of_one, steps_per_number

FEWEST_ROWS = 3  # that grow, of a running total
MOST_BACK = 0.05  # of the rows: more with a time before that of the row above show no clock
SINCE_START_S = 1e8  # times below are no dates: seconds since the program's start, not since 1970
FILES = ("*.csv", "*.jsonl", "*.json")
TIME = "time"
SEEN_AND_EPOCH = ("seen", "seen_all", "epoch")  # columns that may say more beside the step
NAMES = {  # what a column of this name is, if `columns` says nothing
    "step": r"(global_|train_)?(step|iter|iteration)",
    "epoch": r"epoch",
    "loss": r"(train[/_])?(total_)?loss(_step)?",
    "lr": r"lr|learning_rate|lr-.*",
    "top1": r"(val|eval|test)[/_](acc|accuracy|top1|top-1)",
    "eval_loss": r"(val|eval|test)[/_]loss",
    TIME: r"time|timestamp|wall_time|created_at|_timestamp|elapsed(_time)?",
}
Row = Mapping[str, Any]


def wanted(spec: RunSpec) -> list[re.Pattern[str]]:
    """Return nothing: no lines are needed."""
    return []


def read(source: Output) -> Reading:
    """Return the steps. Raises UnreadError without a file, or columns that say how far training was
    and when.
    """
    program = source.spec.program
    assert program is not None
    path = source.newest(program.file) if program.file else only_table(source)
    rows = rows_of(path)
    columns = _columns(path, rows, program)
    counts = [name for name in COUNTS if name in columns]
    if not counts or TIME not in columns:
        lacks = "a count of steps, epochs or samples" if not counts else "times"
        there = ", ".join(dict.fromkeys(name for row in rows[:100] for name in row)) or "none"
        raise UnreadError(f"{path.name}: no column holds {lacks} (key columns); there are: {there}")
    _check_samples(path, rows, columns)
    points: list[StepEnd] = []
    seen: list[dict[str, float | None]] = []
    counted: list[Row] = []
    evaluations: list[Evaluation] = []
    rates: list[float | None] = []
    counter = _counter(rows, columns, counts)
    start_s = _start_s(path, [seconds_of(row.get(columns[TIME])) for row in rows])
    for row in rows:
        since_s = seconds_of(row.get(columns[TIME]))
        at_s = None if since_s is None else start_s + since_s
        values = {
            group: value_of(row.get(column)) for group, column in columns.items() if group != TIME
        }
        if at_s is None:
            continue
        if values.get("top1") is not None or values.get("eval_loss") is not None:
            evaluations.append(Evaluation(at_s, values.get("top1"), values.get("eval_loss")))
        step = _step(values, counter, source.spec, program)
        if step is not None and (values.get("loss") is not None or "loss" not in columns):
            rate, samples = values.get("samples_per_s"), values.get("samples")
            step_s = (samples or source.spec.global_batch) / rate if rate and rate > 0 else None
            points.append(
                StepEnd(at_s, step, values.get("loss"), values.get("lr"), samples, step_s=step_s)
            )
            rates.append(rate)
            seen.append(values)
            counted.append(row)
    said = [row[columns[counter]] for row in counted]
    counts_said = [value_of(one) or 0.0 for one in said]
    of_one = steps_of_one(counter, counts_said, "", source.spec, program)
    if wrong := too_coarse(counts_said, [str(one) for one in said], of_one):
        raise UnreadError(f"{path.name}: column {columns[counter]!r}: {wrong}")
    if not points:
        raise UnreadError(f"{path.name}: {len(rows)} rows, and none with a step and a time")
    _check_clock(path, points, columns[TIME])
    evaluations = as_fractions(evaluations, program.top1_in)
    run = reading(
        source,
        points,
        evaluations,
        paused_s=[e.time_s for e in evaluations],
        printed_rates=as_one_rate(rates),
        **_evidence(counter, points, seen),
    )
    run.remarks |= {"file": path.name, "columns": columns}
    return run


def only_table(source: Output) -> Path:
    """Return the only table in the program's folder. Raises UnreadError where there are none or
    several.
    """
    found = sorted(path for pattern in FILES for path in source.files(pattern))
    if len(found) != 1:
        below = [path.relative_to(source.folder.parent) for path in found[:8]]
        names = (
            ", ".join(str(path).removeprefix(f"{source.folder.name}/") for path in below) or "none"
        )
        raise UnreadError(
            f"the key `file` must name the table in its folder that is read; there are: {names}"
        )
    return found[0]


def rows_of(path: Path) -> list[Row]:
    """Return the rows of a CSV file, of JSON lines, or of a list in JSON. Raises UnreadError."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if text.lstrip().startswith(("{", "[")):
        return _of_json(path, text)
    lines = [line for line in text.splitlines() if line.strip()]
    return [
        {(name or "").strip(): value for name, value in row.items()}
        for row in csv.DictReader(lines)
    ]


def _of_json(path: Path, text: str) -> list[Row]:
    rows: list[Any] = []
    try:
        whole = json.loads(text)
        rows = whole if isinstance(whole, list) else [whole]
    except ValueError:
        for line in text.splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:  # cut off, or of something else
                continue
    found: list[Row] = [row for row in rows if isinstance(row, dict)]
    if not found:
        raise UnreadError(f"{path.name}: has no rows, neither of CSV nor of JSON lines")
    return found


def _columns(path: Path, rows: Iterable[Row], program: Program) -> dict[str, str]:
    """Return the column of each group: as key `columns` says, else by its name.

    Raises UnreadError where a column is not there, or several could be one.
    """
    there = dict.fromkeys(name for row in rows for name in row)
    columns = {group: str(name) for group, name in program.columns}
    for group, name in columns.items():
        if name not in there:
            raise UnreadError(
                f"{path.name}: has no column {name!r} (columns.{group}); there are:"
                f" {', '.join(there)}"
            )
    for group, pattern in NAMES.items():
        fit = [name for name in there if re.fullmatch(pattern, name, re.I)]
        if group in columns or not fit:
            continue
        if len(fit) > 1 and group in ("step", "loss"):
            raise UnreadError(
                f"{path.name}: several columns may be {group}: {', '.join(fit)}; say"
                f" columns.{group}"
            )
        columns[group] = fit[0]
    return columns


def _evidence(
    counter: str, points: Sequence[StepEnd], rows: Sequence[Mapping[str, float | None]]
) -> dict[str, Any]:
    """Return fields of `_proof.Facts` that other columns give: how many samples a step has by a
    column of samples, and how many steps an epoch has by one of epochs with fractions.
    """
    if counter != "step":
        return {}
    steps = [point.step for point in points]
    seen, seen_all, epochs = ([row.get(name) for row in rows] for name in SEEN_AND_EPOCH)
    evidence = counted_samples(steps, seen, seen_all)
    first, last = epochs[0], epochs[-1]
    has_parts = any(epoch is not None and epoch != int(epoch) for epoch in epochs)
    if has_parts and first is not None and last is not None and per_step(steps, epochs):
        evidence["printed_steps_per_epoch"] = (steps[-1] - steps[0]) / (last - first)
    return evidence


def _start_s(path: Path, times_s: Iterable[float | None]) -> float:
    """Return what to add to the times of the file, so that they are since 1970 [s]: 0, or, if they
    are since the program's start, when that was. The last row was written when the file was.
    """
    last_s = max((time_s for time_s in times_s if time_s is not None), default=0.0)
    return path.stat().st_mtime - last_s if last_s < SINCE_START_S else 0.0


def _check_clock(path: Path, points: Sequence[StepEnd], column: str) -> None:
    """Raise UnreadError if times go back so often that they are no clock's."""
    back = sum(b.time_s < a.time_s for a, b in itertools.pairwise(points))
    if back > MOST_BACK * len(points):
        raise UnreadError(
            f"{path.name}: column {column!r} (columns.{TIME}) falls in {back} of {len(points)} rows:"
            " it is not when a row was written, but perhaps how long something took. Name another"
            " column, or let it write the time"
        )


def _check_samples(path: Path, rows: Iterable[Row], columns: Mapping[str, str]) -> None:
    """Raise UnreadError if the column of a step's samples is a running total."""
    if "samples" not in columns:
        return
    said = [value_of(row.get(columns["samples"])) for row in rows]
    values = [value for value in said if value is not None]
    grows_by = [b - a for a, b in itertools.pairwise(values)]
    if len(grows_by) >= FEWEST_ROWS and min(grows_by) > 0:
        raise UnreadError(
            f"{path.name}: column {columns['samples']!r} (columns.samples) grows by"
            f" {grows_by[0]:g} a row: it is a running total, read by columns.seen_all"
        )


def value_of(said: Any) -> float | None:
    """Return the number of a cell; None of else, and of true and false."""
    if isinstance(said, bool) or said is None:
        return None
    return float(said) if isinstance(said, int | float) else number(str(said))


def seconds_of(said: Any) -> float | None:
    """Return a time as seconds: a number, or a date. None of else."""
    value = (
        value_of(said)
        if not isinstance(said, str) or re.fullmatch(r"\s*[-+\d.eE]+\s*", said)
        else None
    )
    if value is not None:
        return value / 1e3 if value > 1e11 else value
    try:
        return datetime.fromisoformat(str(said).strip()).timestamp()
    except ValueError:
        return None


def _counter(rows: Iterable[Row], columns: Mapping[str, str], counts: Sequence[str]) -> str:
    """Return which column says how far training was: the first of COUNTS that several rows of
    training have. Rows of a validation, or of a whole epoch, may lack it.
    """
    of_training = [row for row in rows if value_of(row.get(columns.get("loss", ""))) is not None]
    for name in counts:
        told = [row for row in of_training or rows if value_of(row.get(columns[name])) is not None]
        if len(told) > 1:
            return name
    return counts[0]


def _step(
    values: Mapping[str, float | None], name: str, spec: RunSpec, program: Program
) -> float | None:
    """Return how many steps a row says."""
    value = values.get(name)
    if value is None or not math.isfinite(value):
        return None
    if name == "step":
        return value * steps_per_number(program)
    if name in ("seen", "seen_all"):
        return value / (spec.global_batch if name == "seen_all" else spec.batch_per_worker)
    per_epoch = epoch_steps(spec, program)
    if per_epoch is None:
        raise UnreadError(
            f"column {name} needs the steps of an epoch: say steps_per_epoch, or samples_per_epoch"
        )
    return value * per_epoch / (100 if name == "percent" else 1)
