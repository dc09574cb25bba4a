"""How the steps of a user's program are read: one file per way, and the contract that each keeps.

`run/program.py` stamps the lines that the program prints, asks the program's reading for a
`Reading`, and makes the record of it. A way that reads files finds them in the program's own
folder, `{folder}` of its command.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ddlbench.core.formatting import count_of
from ddlbench.core.spec import RunSpec
from ddlbench.core.step_rows import StepRow
from ddlbench.run.readings import _counting, _pauses, _proof
from ddlbench.run.readings._proof import MAY_BE_STEPS as MAY_BE_STEPS
from ddlbench.run.readings._values import (
    Evaluation,
    Line,
    NotFiniteError,
    Output,
    Reading,
    ReadingMember,
    StepEnd,
    UnreadError,
)

__all__ = [
    "Evaluation",
    "Line",
    "NotFiniteError",
    "Output",
    "Reading",
    "ReadingMember",
    "StepEnd",
    "UnreadError",
]
MOST_ROWS = 20_000_000  # of all ranks
TOTAL = (
    "only the time of whole steps is known: put the recorder into the program to tell parts apart"
)
FRACTION, PERCENT = "fraction", "percent"  # values of key top1_in


def reading(
    source: Output,
    points: Iterable[StepEnd],
    evaluations: Sequence[Evaluation] = (),
    *,
    paused_s: Sequence[float] = (),
    hinted_s: Sequence[float] = (),
    step_s: float | None = None,
    **evidence: Any,
) -> Reading:
    """Return the steps between points; the first point only says when they began.

    Where steps lie between two points, each of them took an equal share. A step without samples has
    those of the global batch. `paused_s` are times at which the program does something else,
    `hinted_s` those at which its words say that it may, `step_s` is how long a step takes by its
    own word, `evidence` fields of `_proof.Facts`. Raises
    UnreadError if there are fewer than two points, numbers that count no steps, or a contradiction;
    NotFiniteError of a loss that is no finite number.
    """
    spec = source.spec
    points = [_checked(point) for point in points]
    per_epoch = spec.program.steps_per_epoch if spec.program else None
    of = _counting.numbered(points, source.again_s, per_epoch, spec.workers)
    if len(of.ends) < 2:
        raise UnreadError(
            f"steps that were read: {len(of.ends)}; at least 2 are needed: run longer, or let it"
            " print its progress more often"
        )
    if (of.ends[-1].step - of.ends[0].step) * spec.workers > MOST_ROWS:
        raise UnreadError(
            f"its step numbers run from {of.ends[0].step} to {of.ends[-1].step}: are these really"
            " steps?"
        )
    of.ends, bursts = _counting.in_bursts(of.ends)
    if bursts and source.again_s:
        raise UnreadError(
            f"{len(of.ends)} lines came in {len(bursts)} bursts, and the run was interrupted: the steps"
            " in between are unknown. Let it print unbuffered: print(..., flush=True), python -u,"
            " or stdbuf -oL before the command"
        )
    parts, doubt = _pauses.intervals(of, paused_s, hinted_s)
    run = Reading(
        of.ends[0].time_s, _rows(spec, of, parts), [*evaluations], dict.fromkeys(UNSPLIT, TOTAL)
    )
    for name in ("loss", "lr"):
        if all(getattr(end, name) is None for end in of.ends[1:]):
            run.not_known[name] = "the program does not say it"
    every = max(part.steps for part in parts)
    if every > 1:
        run.remarks["told_every_steps"] = every
    if every > 1 or bursts:
        run.remarks["told_steps"] = _counting.told_steps(of, bursts)
    if bursts:
        run.remarks["bursts"] = len(bursts)
        print(
            f"{len(of.ends)} lines came in {len(bursts)} bursts: steps have mean times; let it print"
            " unbuffered",
            flush=True,
        )
    if all(end.samples is None for end in of.ends[1:]):
        run.remarks["samples"] = "the global batch: the program does not say its samples"
    if of.per_epoch:
        run.remarks["steps_per_epoch"] = of.per_epoch
    _tell_pauses(run, spec, parts, doubt)
    program = spec.program
    known: dict[str, Any] = {"steps_per_epoch": of.per_epoch, "printed_step_s": step_s}
    known["samples_per_epoch"] = program.samples_per_epoch if program else None
    if of.per_epoch and all(end.total is not None for end in of.ends):
        known["printed_steps_per_epoch"] = of.per_epoch
    if not of.per_epoch and (
        steps := _one_epoch(of.ends, known["samples_per_epoch"], spec.global_batch)
    ):
        known["printed_steps_per_epoch"] = steps
    prove(run, spec, sum(part.took_s - part.pause_s for part in parts), **(known | evidence))
    return run


def _one_epoch(ends: Sequence[StepEnd], declared: float | None, batch: int) -> float | None:
    """Return the total behind each step if it is the total of an epoch of so many samples. Other
    totals count the complete run.
    """
    totals = {end.total for end in ends}
    total = totals.pop()
    return (
        total
        if declared and total and not totals and _proof.of_epoch(total, declared / batch)
        else None
    )


def _checked(point: StepEnd) -> StepEnd:
    """Return the point without a number of samples that is none. Raises NotFiniteError."""
    if point.loss is not None and not math.isfinite(point.loss):
        raise NotFiniteError(point.loss, point.step)
    if point.samples is not None and not 0 <= point.samples < 1e15:
        return point._replace(samples=None)
    return point


def _rows(
    spec: RunSpec, of: _counting.Numbering, parts: Sequence[_pauses.Interval]
) -> list[StepRow]:
    """Return each rank's row of each step.

    A pause stands before the steps of its interval, or behind those that end the epoch.
    """
    rows: list[StepRow] = []
    first = of.ends[0]
    for part in parts:
        before = 0
        if part.why == _pauses.EPOCH and of.per_epoch and part.start.step % of.per_epoch:
            before = of.per_epoch - int(part.start.step % of.per_epoch)
        for place in range(1, part.steps + 1):
            number, last = int(part.start.step - first.step) + place - 1, place == part.steps
            at_s = part.start.time_s - first.time_s + place * part.each_s
            at_s += part.pause_s if place > before or part.why != _pauses.EPOCH else 0.0
            rows += shares(
                spec,
                number,
                part.each_s,
                at_s,
                part.end if last else part.end._replace(loss=None, lr=None),
            )
    return rows


def _tell_pauses(
    run: Reading, spec: RunSpec, parts: Sequence[_pauses.Interval], doubt: str
) -> None:
    """Record and print the time that was not training, with the rates without and with it."""
    pauses = [part for part in parts if part.pause_s]
    whole_s, pause_s = sum(part.took_s for part in parts), sum(part.pause_s for part in pauses)
    if doubt:
        run.remarks["gaps"] = doubt
        print(doubt, flush=True)
    if not pauses or whole_s <= pause_s:
        return
    images = sum(row.images for row in run.rows)
    rates = {"per_s": images / (whole_s - pause_s), "with_pauses_per_s": images / whole_s}
    told_by = sorted({part.why for part in pauses})
    run.remarks["pauses"] = {"count": len(pauses), "seconds": pause_s, "told_by": told_by, **rates}
    print(
        f"{rates['per_s']:.5g} per s while it trains, {rates['with_pauses_per_s']:.5g} with"
        f" {count_of(len(pauses), 'pause')} ({pause_s:.3g} s, marked by {', '.join(told_by)})",
        flush=True,
    )


def prove(
    run: Reading,
    spec: RunSpec,
    train_s: float,
    *,
    printed_rates: Sequence[float] = (),
    **evidence: Any,
) -> None:
    """Keep what confirms the reading.

    Raises UnreadError with both numbers and the likely reason if something contradicts it. Of
    several ways to make one of the printed rates, the nearest to the clock counts.
    """
    said = spec.program.rate_of if spec.program else None
    facts = _proof.Facts(
        steps=len({row.step for row in run.rows}),
        samples=sum(row.images for row in run.rows),
        train_s=train_s,
        whole_s=max((row.end_s for row in run.rows), default=0.0),
        workers=spec.workers,
        global_batch=spec.global_batch,
        **({"rate_of": said} | evidence),
    )
    facts = replace(facts, printed_rate=_proof.nearest_rate(facts, printed_rates))
    run.proof = _proof.prove(facts)
    if run.proof.against:
        raise UnreadError(run.proof.against)
    if facts.printed_rate is not None and train_s:
        clock = facts.samples / train_s
        printed = facts.printed_rate * (spec.workers if facts.rate_of == "worker" else 1)
        agrees = _proof.RATE in run.proof.by
        run.remarks["printed_rate"] = {
            "printed_per_s": printed,
            "by_clock_per_s": clock,
            "agrees": agrees,
        }
        hint = (
            "; of one worker? Then rate_of: worker"
            if spec.workers > 1 and facts.rate_of is None
            else ""
        )
        if not agrees:
            print(
                f"prints a rate of {printed:g} per s, its timestamps give {clock:g}, which is"
                f" used{hint}",
                flush=True,
            )
        elif hint and not run.proof.proved:
            print(
                f"prints a rate of {printed:g} per s, as its timestamps do: rate_of: all would"
                " prove it, if it is the rate of all workers",
                flush=True,
            )
    run.remarks |= {"reading": run.proof.text, "proved": run.proof.proved}


def as_fractions(
    evaluations: Sequence[Evaluation], unit: str | None, percent: bool = False
) -> list[Evaluation]:
    """Return validations with their accuracies as fractions.

    `unit` is the value in the program's file. `percent`: the lines have a percent sign, so the
    accuracies are fractions already.

    A value above 1 shows that all are in percent. If there is no such value and no unit is given,
    0.9 may be either. Such accuracies are left out, and a message is printed.
    """
    told = [e.top1 for e in evaluations if e.top1 is not None and math.isfinite(e.top1)]
    if not told or percent:
        return [*evaluations]
    if unit == PERCENT or (unit is None and max(told) > 1):
        return [e._replace(top1=None if e.top1 is None else e.top1 / 100) for e in evaluations]
    if unit == FRACTION and max(told) <= 1:
        return [*evaluations]
    if unit == FRACTION:
        raise UnreadError(
            f"top1 is {max(told):g}, and top1_in says fraction: a fraction is at most 1"
        )
    print(f"top-1 of {told[-1]:g} is left out: percent, or a fraction? Set top1_in", flush=True)
    return [e._replace(top1=None) for e in evaluations]


UNSPLIT = ("data_wait_s", "forward_s", "backward_s", "communication_s", "optimizer_s")


def shares(spec: RunSpec, step: int, took_s: float, end_s: float, point: StepEnd) -> list[StepRow]:
    """Return a step's row on each rank, where only the sum over the ranks is known."""
    samples = round(point.samples if point.samples is not None else spec.global_batch)
    lr, loss = (math.nan if number is None else number for number in (point.lr, point.loss))
    return [
        unsplit(
            step,
            rank,
            share(samples, rank, spec.workers),
            lr,
            loss / spec.workers,
            0.0,
            took_s,
            end_s,
        )
        for rank in range(spec.workers)
    ]


def share(samples: int, rank: int, ranks: int) -> int:
    """Return a rank's samples of a step."""
    return samples // ranks + (rank < samples % ranks)


def unsplit(
    step: int,
    rank: int,
    images: int,
    lr: float,
    loss: float,
    wait_s: float,
    rest_s: float,
    end_s: float,
) -> StepRow:
    """Return a row in which all but the wait for data stands in `forward_s`."""
    return StepRow(0, step, rank, images, lr, loss, wait_s, rest_s, 0.0, None, 0.0, end_s)
