"""recorder: rows that `ddlbench_recorder` left, one file per rank.

It knows each rank's wait for data and the rest of a step. What that rest consists of it cannot
know.
"""

import json
import math
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ddlbench.core.files import read_bytes
from ddlbench.core.spec import RunSpec
from ddlbench.core.step_rows import StepRow
from ddlbench.run import trained_together
from ddlbench.run.readings import (
    Evaluation,
    NotFiniteError,
    Output,
    Reading,
    UnreadError,
    prove,
    share,
    unsplit,
)

REST = (
    "the recorder knows the wait for data and the rest of a step: all of that rest stands in"
    " forward_s"
)
FIELDS = [
    ("step", "<i8"),
    *((name, "<f8") for name in ("began_s", "end_s", "wait_s", "samples", "loss", "lr")),
]


def wanted(spec: RunSpec) -> list[re.Pattern[str]]:
    """Return nothing: no lines are needed."""
    return []


def read(source: Output) -> Reading:
    """Return the steps. Raises UnreadError if no rank recorded any, or ranks were others than the
    run's.
    """
    workers, logs_of_ranks = source.spec.workers, sorted(source.partial.glob("recorder-*.jsonl"))
    logs = {int(path.stem.split("-")[1]): _said(path) for path in logs_of_ranks}
    if not logs:
        raise UnreadError(
            "no Recorder was made: rec = Recorder(), rec.step(loss, samples) in the program"
        )
    worlds = {line["world"] for lines in logs.values() for line in lines if "world" in line}
    if max(*logs, *(world - 1 for world in worlds)) >= workers:
        raise UnreadError(
            f"it was given {workers} workers, but ran with {max(*worlds, max(logs) + 1)}: pass the"
            " placeholder {workers} in the program's command"
        )
    tables = {rank: _table(source.partial / f"recorder-{rank}.steps") for rank in logs}
    tables = {rank: table for rank, table in tables.items() if table}
    if not tables:
        raise UnreadError(
            "a Recorder was made and no step recorded: call rec.step(loss, samples) after each step"
        )
    common = set.intersection(*(set(table) for table in tables.values()))
    if not common:
        raise UnreadError(f"no step was recorded by all of ranks {', '.join(map(str, tables))}")
    first = tables.get(0) or next(iter(tables.values()))
    steps = sorted(common)
    run = Reading(min(table[steps[0]]["began_s"] for table in tables.values()), [])
    for rank in range(workers):  # a rank that recorded nothing goes with the first
        began = [line["began_s"] for line in logs.get(rank, logs[min(logs)]) if "began_s" in line]
        run.rows += _rows(
            rank, [tables.get(rank, first)[step] for step in steps], began, source.spec
        )
    if len(tables) < workers:
        run.remarks["ranks_recorded"] = sorted(tables)
    if all(row["samples"] != row["samples"] for row in first.values()):
        run.remarks["samples"] = "the global batch: the program does not say its samples"
    else:
        total = [0] * len(steps)
        for row in run.rows:
            total[row.step] += row.images
        run.rows = [
            row._replace(loss=row.loss * workers * row.images / max(total[row.step], 1))
            for row in run.rows
        ]
    run.not_known = dict.fromkeys(
        ("forward_s", "backward_s", "communication_s", "optimizer_s"), REST
    )
    if all(row["wait_s"] != row["wait_s"] for row in first.values()):
        run.not_known["data_wait_s"] = (
            "the program does not take its batches from rec.batches(loader)"
        )
    for name in ("loss", "lr"):
        if all(row[name] != row[name] for row in first.values()):
            run.not_known[name] = "the program does not say it"
    ends = [line for line in logs.get(0, []) if "evaluated" in line]
    for rank, lines in logs.items():
        for memory in [line["memory"] for line in lines if "memory" in line]:
            peaks = run.ranks.setdefault(rank, {})
            peaks |= {name: max(number, peaks.get(name, 0)) for name, number in memory.items()}
    run.evaluations = [Evaluation(line["time_s"], **line["evaluated"]) for line in ends]
    _check_losses(logs, first)
    waits_for_gpu = (
        source.spec.device == "cpu" or "loss" not in run.not_known
    )  # else steps end when they are queued
    run.told = {rank: _told(table, steps) for rank, table in tables.items() if waits_for_gpu}
    run.one_clock = (
        len({line["host"] for lines in logs.values() for line in lines if "host" in line}) == 1
    )
    run.says = next(
        (int(line["together"]) for lines in logs.values() for line in lines if "together" in line),
        None,
    )
    train_s = sum(row.took_s for row in run.rows if row.rank == 0)
    counted = "samples" not in run.remarks
    prove(run, source.spec, train_s, by_construction="the recorder" if counted else None)
    return run


def _told(table: dict[int, dict[str, float]], steps: list[int]) -> list[trained_together.Told]:
    """Return what a rank recorded of these steps."""
    return [
        trained_together.Told(step, table[step]["end_s"], table[step]["loss"]) for step in steps
    ]


def _check_losses(
    logs: dict[int, list[dict[str, Any]]], first: dict[int, dict[str, float]]
) -> None:
    """Raise NotFiniteError if the program told a loss that is not finite."""
    for lines in logs.values():
        for line in lines:
            if "not_finite" in line:
                raise NotFiniteError(float(line["not_finite"]["loss"]), line["not_finite"]["step"])
    for step, row in sorted(first.items()):
        if math.isinf(row["loss"]):
            raise NotFiniteError(row["loss"], step)


def _said(path: Path) -> list[dict[str, Any]]:
    """Read its lines, except one that was cut off."""
    lines = []
    for line in read_bytes(path).decode("utf-8", "replace").splitlines():
        with suppress(ValueError):
            lines.append(json.loads(line))
    return lines


def _table(path: Path) -> dict[int, dict[str, float]]:
    """Read a rank's rows by step; for a step that was made again, after an interruption, the
    last.
    """
    import numpy as np

    try:
        data = read_bytes(path)
    except OSError:
        return {}
    size = np.dtype(FIELDS).itemsize
    rows = np.frombuffer(data[: len(data) // size * size], FIELDS)
    names = [name for name, _ in FIELDS]
    return {int(row[0]): dict(zip(names, row, strict=True)) for row in rows.tolist()}


def _rows(
    rank: int, recorded: list[dict[str, float]], began: list[float], spec: RunSpec
) -> Iterable[StepRow]:
    """Yield a rank's rows, whose clock stands still from the end of an interrupted process to the
    next one's first step.
    """
    start_s, lost_s, before = recorded[0]["began_s"], 0.0, recorded[0]
    usual = share(spec.global_batch, rank, spec.workers)
    for number, row in enumerate(recorded):
        if any(before["end_s"] < again_s <= row["began_s"] for again_s in began[1:]):
            lost_s += row["began_s"] - before["end_s"]
        took_s = max(row["end_s"] - row["began_s"], 0.0)
        wait_s = min(row["wait_s"], took_s) if row["wait_s"] == row["wait_s"] else 0.0
        images = usual if row["samples"] != row["samples"] else round(row["samples"])
        loss, end_s = row["loss"] / spec.workers, row["end_s"] - start_s - lost_s
        yield unsplit(number, rank, images, row["lr"], loss, wait_s, took_s - wait_s, end_s)
        before = row
