"""How the steps of a user's program are read: one file per way, and the contract that each keeps.

`run/program.py` stamps the lines that the program prints, asks the program's reading for a `Reading`, and makes the
record of it. A way that reads files finds them in the program's own folder, `{folder}` of its command.
"""

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from ddlbench.core.record import StepRow
from ddlbench.core.spec import RunSpec

MOST_ROWS = 20_000_000  # of all ranks
TOTAL = "only the time of whole steps is known: put the recorder into the program to tell parts apart"


class UnreadError(ValueError):
    """The program left no steps that could be read; the message says what was looked for and what was there."""


class Line(NamedTuple):
    """A line that a rank of the program printed, and when it was read [s since 1970]; rank 0 if nobody says which."""

    time_s: float
    text: str
    rank: int = 0


class StepEnd(NamedTuple):
    """The end of a step as a program tells it. Steps are counted in its own way; None where it does not say it."""

    time_s: float  # [s since 1970]
    step: int
    loss: float | None = None
    lr: float | None = None
    samples: float | None = None  # of the step, over all ranks


class Evaluation(NamedTuple):
    """What the program says of a validation. `time_s` [s since 1970]; `top1` is a fraction."""

    time_s: float
    top1: float | None = None
    loss: float | None = None


@dataclass(frozen=True)
class Output:
    """What a reading may look at: the run, the program's own folder, that of the record, and what it printed.

    `lines` are those that the reading wants; `last` are the last ones that it printed, whatever they say. `again_s` are
    the times when an interrupted run was started again [s since 1970].
    """

    spec: RunSpec
    folder: Path
    partial: Path
    lines: Sequence[Line]
    last: Sequence[str] = ()
    again_s: Sequence[float] = ()

    def newest(self, pattern: str) -> Path:
        """The file of this name that was written last, below the program's folder. Raises UnreadError without one."""
        there = [path for path in self.folder.rglob(pattern) if path.is_file()]
        if not there:
            raise UnreadError(f"no {pattern} in its folder: does the command write into {{folder}}?")
        return max(there, key=lambda path: path.stat().st_mtime)


@dataclass
class Reading:
    """Steps of a run. `began_s` is when the first one began [s since 1970]; `rows` holds each rank's row of each step.

    `not_known` gives reasons by column of `steps.parquet`; such a column is NaN, but that the whole of a step stands in
    `forward_s` where its parts are not known. `remarks` go into the record, and `ranks`: columns of each rank's memory.
    """

    began_s: float
    rows: list[StepRow]
    evaluations: list[Evaluation] = field(default_factory=list)
    not_known: dict[str, str] = field(default_factory=dict)
    remarks: dict[str, object] = field(default_factory=dict)
    ranks: dict[int, dict[str, int]] = field(default_factory=dict)


class ReadingMember(Protocol):
    """One file of this room. Importing it imports no package that only some have."""

    def wanted(self, spec: RunSpec) -> list[re.Pattern[str]]:
        """Patterns of the lines that it needs; others are not kept."""

    def read(self, source: Output) -> Reading:
        """The steps. Raises UnreadError if there are none; its message is for people."""


def reading(source: Output, points: Iterable[StepEnd], evaluations: Sequence[Evaluation] = ()) -> Reading:
    """The steps between points; the first point only says when they began.

    The first mention of a step counts. Where steps lie between two points, each of them took an equal share. A step
    without samples has those of the global batch. Raises UnreadError if there are fewer than two points, or numbers
    that count no steps.
    """
    spec, again_s = source.spec, [*source.again_s]
    ends: list[StepEnd] = []
    seen: dict[int, int] = {}
    before, offset, since = 0, 0, 0  # the last step as it was told; what is added to it; points since that changed
    lost_s = 0.0  # between an interruption and the step with which the run went on
    for point in points:
        if not math.isfinite(point.time_s):
            continue
        if point.samples is not None and not 0 <= point.samples < 1e15:  # no number of samples, or none at all
            point = point._replace(samples=None)
        interrupted = [again_s.pop(0) for at_s in [*again_s] if at_s <= point.time_s]
        if ends and not interrupted and since >= 3 and point.step < before and point.step <= ends[0].step:
            offset, since = offset + before + (1 if ends[0].step == 0 else 0), 0  # it counts each epoch anew
        before, number = point.step, point.step + offset
        if ends and interrupted:
            lost_s = point.time_s - ends[seen.get(number, -1)].time_s
        if number in seen:
            kept = ends[seen[number]]
            ends[seen[number]] = kept._replace(**{k: v for k, v in point._asdict().items() if getattr(kept, k) is None})
        elif not ends or number > ends[-1].step:
            seen[number], since = len(ends), since + 1
            ends.append(point._replace(step=number, time_s=point.time_s - lost_s))
    if len(ends) < 2:
        raise UnreadError(f"steps that were read: {len(ends)}; at least 2 are needed: run longer, or let it tell more")
    if (ends[-1].step - ends[0].step) * spec.workers > MOST_ROWS:
        raise UnreadError(f"it tells steps from {ends[0].step} to {ends[-1].step}: are these numbers of steps?")
    rows: list[StepRow] = []
    first, every = ends[0], [b.step - a.step for a, b in itertools.pairwise(ends)]
    for start, end in itertools.pairwise(ends):
        count = end.step - start.step
        each_s = max(end.time_s - start.time_s, 0.0) / count
        for place in range(1, count + 1):
            number, last = start.step + place - first.step - 1, place == count
            at_s = start.time_s - first.time_s + place * each_s
            rows += shares(spec, number, each_s, at_s, end if last else end._replace(loss=None, lr=None))
    run = Reading(first.time_s, rows, list(evaluations), dict.fromkeys(UNSPLIT, TOTAL))
    for name in ("loss", "lr"):
        if all(getattr(end, name) is None for end in ends[1:]):
            run.not_known[name] = "the program does not say it"
    if max(every) > 1:
        run.remarks["told_every_steps"] = max(every)
    if all(end.samples is None for end in ends[1:]):
        run.remarks["samples"] = "the global batch: the program does not say its samples"
    return run


UNSPLIT = ("data_wait_s", "forward_s", "backward_s", "communication_s", "optimizer_s")


def shares(spec: RunSpec, step: int, took_s: float, end_s: float, point: StepEnd) -> list[StepRow]:
    """A step's row on each rank, where only the whole is known."""
    samples = round(point.samples if point.samples is not None else spec.global_batch)
    lr, loss = (math.nan if number is None else number for number in (point.lr, point.loss))
    return [
        unsplit(step, rank, share(samples, rank, spec.workers), lr, loss / spec.workers, 0.0, took_s, end_s)
        for rank in range(spec.workers)
    ]


def share(samples: int, rank: int, ranks: int) -> int:
    """A rank's samples of a step."""
    return samples // ranks + (rank < samples % ranks)


def unsplit(
    step: int, rank: int, images: int, lr: float, loss: float, wait_s: float, rest_s: float, end_s: float
) -> StepRow:
    """A row in which all but the wait for data stands in `forward_s`."""
    return StepRow(0, step, rank, images, lr, loss, wait_s, rest_s, 0.0, None, 0.0, end_s)
