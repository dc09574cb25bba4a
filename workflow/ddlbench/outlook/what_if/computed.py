"""The formulas: how a change moves the time of a step, between what is least and most possible.

Beside the computing of one worker, a step of more takes a share e longer (`regression.lost`). Nobody sees from rates
alone whether e is communication or waiting, nor how much communication hides behind the backward pass. So a change has
two ends. With r, the computing after the change over that before, s, the time of all communication likewise, and H, the
most of a worker's step that communication can hide behind (the backward pass):

    step after / step of one worker before = r + e'
    e' at least  min(r e, max(0, s e + min(0, s - r) H))      all of it is computing's kind, or communication shrinks
    e' at most   max(r e, s e + max(0, s - r) H)              ... or what was hidden comes to light

and the rate changes by (1 + e) / (r + e'). Its interval is that of the prediction as it is, times both ends; the value
in the middle is the geometric mean of both ends.

Bandwidth k between nodes: r = 1, s = 1 / k, and e is what is lost beyond one node. Precision: r between what was
measured, or between no gain and the ratio of the peaks; s = 1, because frameworks reduce gradients in float32. Model: r
as measured, s the ratio of gradients. Batch: r by the regression with what it errs on published pairs (`batch_error`),
s = 1. Workers per node: the regression's own terms (`regression.elsewhere`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import Any, NamedTuple

import pandas as pd

from ddlbench.analysis.prediction import TooLittleError, _priors, regression
from ddlbench.analysis.prediction._priors import Priors
from ddlbench.outlook.what_if.changes import AS_IT_IS, BANDWIDTH, BATCH, MODEL, MOST_WORKERS, NODE, PRECISION, Change
from ddlbench.outlook.what_if.series import NAMED, Series
from ddlbench.settings.machine import Machine

COMPUTED, MEASURED = "computed", "measured"
BACKWARD_SHARE = 2 / 3  # of a step's operations, by their number: a backward pass has two products for each one before
# An interval that spans more than this says nothing that anybody could use.
WIDEST = 10.0


class NothingToSayError(ValueError):
    """The records cannot tell; the message says which measurement would let them."""


@dataclass(frozen=True)
class Rate:
    """Images/s of all workers with its 95 % interval, how it was computed, and the batch of a worker."""

    middle: float
    low: float
    high: float
    basis: str
    batch: float

    @classmethod
    def of(cls, made: Any, basis: str, batch: float) -> Rate:
        """Of the regression's prediction of one count."""
        return cls(float(made.images_per_s[0]), float(made.low[0]), float(made.high[0]), basis, batch)

    def times(self, low: float, high: float, basis: str) -> Rate:
        """After a change that multiplies it by something between both ends."""
        middle = self.middle * math.sqrt(low * high)
        return Rate(middle, self.low * low, self.high * high, basis, self.batch)


def ends(
    lost: tuple[float, float, float], computing: tuple[float, float], communication: float, hidden: float
) -> tuple[float, float]:
    """By what the rate is multiplied, at least and at most: e, r, s and H of this file's first lines."""
    factors = []
    for e in lost:
        for r in computing:
            shown = communication * e + min(0.0, communication - r) * hidden
            least = min(r * e, max(0.0, shown))
            most = max(r * e, communication * e + max(0.0, communication - r) * hidden)
            factors += [(1 + e) / (r + least), (1 + e) / (r + most)]
    return min(factors), max(factors)


def rate(
    series: Series, change: Change, workers: int, others: Sequence[Series], machine: Machine, priors: Priors
) -> Rate:
    """The rate after a change. Raises NothingToSayError."""
    batch = float(change.value) if change.kind == BATCH else _batch(series, workers)
    measured, node = series.measured, series.measured.workers_per_node
    if change.kind == BANDWIDTH and measured.workers[-1] <= node:
        raise NothingToSayError(_one_node(series))
    try:
        at = int(change.value) if change.kind == NODE else None
        made = _checked(series, Rate.of(regression.elsewhere(measured, [workers], [batch], priors, at), "", batch))
        if change.kind == AS_IT_IS:
            return Rate(made.middle, made.low, made.high, "regression", batch)
        if change.kind == NODE:
            why = "regression; what another node changes as in published series"
            return Rate(made.middle, made.low, made.high, why, batch)
        # Of the network between nodes, beyond one node; of all communication, beyond one worker.
        few = node if change.kind == BANDWIDTH else 1
        lost = regression.lost(measured, few, workers, _batch(series, workers), priors)
    except TooLittleError as error:
        raise NothingToSayError(str(error)) from None
    hidden = 0.0 if workers <= few else series.backward_share or BACKWARD_SHARE
    if change.kind == BANDWIDTH:
        if workers <= node:
            return made.times(1.0, 1.0, "the workers share a node")
        bounds = ends(lost, (1.0, 1.0), 1 / float(change.value), hidden)
        return _checked(series, made.times(*bounds, f"up to {lost[2]:.0%} of a step is lost beyond a node"))
    if change.kind == BATCH:
        # The prediction has the loss grow with the computing, which is one end; r is the ratio of a step of one worker.
        both = regression.predict(measured, [1, 1], [_batch(series, workers), batch], priors)
        was, now = (float(value) for value in both.images_per_s)
        larger = batch / _batch(series, workers)
        r, wider = was / now * larger, batch_error() ** abs(math.log2(larger))
        low, high = (factor * r for factor in ends(lost, (r, r), 1.0, hidden))
        low, high = min(low, 1.0) / wider, max(high, 1.0) * wider
        return _checked(series, made.times(low, high, "regression; communication stays as it is"))
    computing, basis = _computing(series, change, others, machine)
    gradients = _gradients(series, change, others) if change.kind == MODEL else 1.0
    return _checked(series, made.times(*ends(lost, computing, gradients, hidden), basis))


@cache
def batch_error() -> float:
    """By what factor per doubling of the batch the regression errs at most, in 95 % of published pairs of one worker.

    Pairs are series of one source that differ in their batch only, as their names say (`...-b128`).
    """
    priors, errors = _priors.read(), []
    for one, other in permutations(_priors.published(), 2):
        first, second = re.fullmatch(r"(.*)-b\d+", one.name), re.fullmatch(r"(.*)-b\d+", other.name)
        if not (first and second) or one.source != other.source or first[1] != second[1]:
            continue
        was, now = one.measured, other.measured
        if was.workers[0] == now.workers[0] == 1 and was.batch_per_worker[0] != now.batch_per_worker[0]:
            said = regression.predict(was, [1], [now.batch_per_worker[0]], priors).images_per_s[0]
            doublings = abs(math.log2(now.batch_per_worker[0] / was.batch_per_worker[0]))
            errors.append(abs(math.log(now.images_per_s[0] / said)) / doublings)
    errors.sort()
    return math.exp(errors[min(len(errors) - 1, math.ceil(0.95 * len(errors)) - 1)])


def _batch(series: Series, workers: int) -> float:
    """What was measured with so many workers, else what the largest count had."""
    return dict(zip(series.measured.workers, series.measured.batch_per_worker, strict=True)).get(workers, series.batch)


def _one_node(series: Series) -> str:
    node = series.measured.workers_per_node
    return f"all measured counts lie within one node of {node} workers, where no network is seen; measure {2 * node}"


def _checked(series: Series, made: Rate) -> Rate:
    """Raises NothingToSayError if the interval says nothing."""
    if made.high > WIDEST * made.low:
        raise NothingToSayError(
            f"the interval would span more than a factor of {WIDEST:g}; measure {2 * series.measured.workers[-1]} "
            "workers or more, with repeats"
        )
    return made


def _computing(
    series: Series, change: Change, others: Sequence[Series], machine: Machine
) -> tuple[tuple[float, float], str]:
    """(r at least and at most, where from) of another precision or model."""
    kind, value = change.kind, change.value
    if series.of[kind] == value:
        return (1.0, 1.0), "as it is"
    like = _sibling(series, kind, value, others)
    if like is not None:
        both, node = {*like.measured.workers} & {*series.measured.workers}, series.measured.workers_per_node
        count = max((n for n in both if n <= node), default=min(both))
        old, new = _at(series, count), _at(like, count)
        basis = f"measured with {count} workers (n = {old.repeats} and {new.repeats})"
        if old.low is None or old.high is None or new.low is None or new.high is None:
            r = old.rate / new.rate
            return (r, r), f"{basis}: without repeats, its error is not in the interval"
        return (old.low / new.high, old.high / new.low), basis
    if kind == PRECISION:
        peaks = dict(machine.peak_tflops_per_worker)
        now, then = peaks.get(str(series.of[kind])), peaks.get(str(value))
        if now and then and series.of["machine"] == machine.name:
            r = now / then
            return (min(r, 1.0), max(r, 1.0)), "between no change and the ratio of the peaks of the machine's file"
    counts = ", ".join(map(str, series.measured.workers[:1]))
    raise NothingToSayError(
        f"no record of {kind} {value} that is like these in all else; measure it with {counts} workers: one count is "
        f"enough{'' if kind == MODEL else ', or write the peaks of both into peak_tflops_per_worker of the machine'}"
    )


def _sibling(series: Series, kind: str, value: Any, others: Iterable[Series]) -> Series | None:
    """The series that differs in this only, and shares a worker count with this one."""
    for other in others:
        same = all(other.of[key] == series.of[key] for key in NAMED if key not in (kind, "recipe"))
        # A recipe holds the precision, so that of another precision has another name.
        same = same and (kind == PRECISION or other.of["recipe"] == series.of["recipe"])
        shared = {*other.measured.workers} & {*series.measured.workers}
        if same and other.of[kind] == value and other.batch == series.batch and shared:
            return other
    return None


class _Point(NamedTuple):
    """What was measured with one worker count [images/s]; without an interval, of one run."""

    rate: float
    low: float | None
    high: float | None
    repeats: int


def _at(series: Series, workers: int) -> _Point:
    point = next(point for point in series.points if int(point["workers"]) == workers)
    ends = [point[f"throughput_images_per_s{end}"] for end in ("", "_low", "_high")]
    rate, low, high = (None if pd.isna(value) else float(value) for value in ends)
    assert rate is not None  # a point of `scaling` has a rate
    return _Point(rate, low, high, int(point["repeats"]))


def _gradients(series: Series, change: Change, others: Sequence[Series]) -> float:
    """s of another model."""
    like = _sibling(series, change.kind, change.value, others)
    if like is None:  # the same model
        return 1.0
    if not series.gradients_bytes or not like.gradients_bytes:
        raise NothingToSayError("no record says how large the gradients are; records of this version do")
    return like.gradients_bytes / series.gradients_bytes


def counts(series: Series, asked: Sequence[int], doublings: int) -> list[int]:
    """Worker counts of the rows: the measured ones, and those asked, or so many doublings beyond."""
    largest = series.measured.workers[-1]
    beyond = asked or [n for k in range(1, doublings + 1) if (n := largest * 2**k) <= MOST_WORKERS]
    return sorted({*series.measured.workers, *beyond})
