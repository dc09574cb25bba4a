"""The formulas: how a change moves the time of a step, between what is least and most possible.

Beside the computing of one worker, a step of more takes a share e longer (`last_rate.lost`). Nobody sees from rates
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
as measured, s the ratio of gradients. Batch: r by the prediction with what it errs on published pairs (`batch_error`),
s = 1. Workers per node: the prediction's own terms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations

import pandas as pd

from ddlbench.analysis import together
from ddlbench.analysis.prediction import TooLittleError, _priors, last_rate
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
    asked = Question(series, change, workers, others, machine, priors)
    try:
        predicted = asked.predicted()
        if change.kind == AS_IT_IS:
            return replace(predicted, basis="last rate")
        if change.kind == NODE:
            return replace(predicted, basis="last rate; effect of more nodes taken from published series")
        low, high, basis = asked.factors()
    except TooLittleError as error:
        raise NothingToSayError(str(error)) from None
    return _checked(series, predicted.times(low, high, basis))


@dataclass(frozen=True)
class Question:
    """What is asked: a change of a series at a worker count, beside other series of the study."""

    series: Series
    change: Change
    workers: int
    others: Sequence[Series]
    machine: Machine
    priors: Priors

    @property
    def batch(self) -> float:
        """Images of a worker's step before the change: what was measured with so many workers, else with the most."""
        return self.series.batches.get(self.workers, self.series.batch)

    def predicted(self) -> Rate:
        """By the prediction, which knows the batch and the workers of a node. Raises NothingToSayError and
        TooLittleError."""
        kind, value, measured = self.change.kind, self.change.value, self.series.measured
        node = measured.workers_per_node
        if kind == BANDWIDTH and measured.workers[-1] <= node:
            within = f"all measured counts lie within one node of {node} workers"
            raise NothingToSayError(f"{within}, where no network is seen; measure {2 * node}")
        batch, at = (float(value) if kind == BATCH else self.batch), (int(value) if kind == NODE else None)
        numbers = last_rate.predict(measured, [self.workers], [batch], self.priors, at)
        middle, low, high = (float(each[0]) for each in (numbers.images_per_s, numbers.low, numbers.high))
        return _checked(self.series, Rate(middle, low, high, "", batch))

    def factors(self) -> tuple[float, float, str]:
        """By what the change multiplies the rate, at least and at most, and why. Raises NothingToSayError and
        TooLittleError."""
        kind = self.change.kind
        # Of the network between nodes, beyond one node; of all communication, beyond one worker.
        few = self.series.measured.workers_per_node if kind == BANDWIDTH else 1
        lost = last_rate.lost(self.series.measured, few, self.workers, self.batch, self.priors)
        hidden = 0.0 if self.workers <= few else self.series.backward_share or BACKWARD_SHARE
        if kind == BANDWIDTH:
            if self.workers <= few:
                return 1.0, 1.0, "the workers share a node"
            slower = 1 / float(self.change.value)
            return *ends(lost, (1.0, 1.0), slower, hidden), f"up to {lost[2]:.0%} of a step is lost beyond a node"
        if kind == BATCH:
            return *self._of_batch(lost, hidden), "last rate; communication stays as it is"
        computing, basis = self._computing()
        return *ends(lost, computing, self._gradients(), hidden), basis

    def _of_batch(self, lost: tuple[float, float, float], hidden: float) -> tuple[float, float]:
        """The prediction has the loss grow with the computing, which is one end; r is of a step of one worker."""
        batches = [self.batch, float(self.change.value)]
        was, then = (
            float(value) for value in last_rate.predict(self.series.measured, [1, 1], batches, self.priors).images_per_s
        )
        larger = batches[1] / batches[0]
        r, wider = was / then * larger, batch_error() ** abs(math.log2(larger))
        low, high = (factor * r for factor in ends(lost, (r, r), 1.0, hidden))
        return min(low, 1.0) / wider, max(high, 1.0) * wider

    def _sibling(self) -> Series | None:
        """The series that differs in this only, and shares a worker count with this one."""
        kind, value, mine = self.change.kind, self.change.value, self.series
        # A recipe holds the precision, so that of another precision has another name.
        free = together.differing_with(kind) | ({"recipe"} if kind == PRECISION else set())
        for other in self.others:
            same = all(other.of[key] == mine.of[key] for key in NAMED if key not in free)
            shared = {*other.measured.workers} & {*mine.measured.workers}
            if same and other.of[kind] == value and other.batch == mine.batch and shared:
                return other
        return None

    def _computing(self) -> tuple[tuple[float, float], str]:
        """(r at least and at most, where from) of another precision or model. Raises NothingToSayError."""
        kind, value, mine = self.change.kind, self.change.value, self.series
        if mine.of[kind] == value:
            return (1.0, 1.0), "as it is"
        like = self._sibling()
        if like is not None:
            both, node = {*like.measured.workers} & {*mine.measured.workers}, mine.measured.workers_per_node
            count = max((n for n in both if n <= node), default=min(both))
            (was, was_low, was_high, n), (then, then_low, then_high, m) = _at(mine, count), _at(like, count)
            basis = f"measured with {count} workers (n = {n} and {m})"
            if was_low is None or was_high is None or then_low is None or then_high is None:
                return (was / then, was / then), f"{basis}: without repeats, its error is not in the interval"
            return (was_low / then_high, was_high / then_low), basis
        peaks = dict(self.machine.peak_tflops_per_worker) if kind == PRECISION else {}
        before, after = peaks.get(str(mine.of[kind])), peaks.get(str(value))
        if before and after and mine.of["machine"] == self.machine.name:
            r = before / after
            return (min(r, 1.0), max(r, 1.0)), "between no change and the ratio of the peaks of the machine's file"
        peak = "" if kind == MODEL else ", or write the peaks of both into peak_tflops_per_worker of the machine"
        raise NothingToSayError(
            f"no record of {kind} {value} that is like these in all else; measure it with {mine.measured.workers[0]} "
            f"workers: one count is enough{peak}"
        )

    def _gradients(self) -> float:
        """s: of another model the ratio of gradients. Raises NothingToSayError."""
        like = self._sibling() if self.change.kind == MODEL else None
        if like is None:  # the same model
            return 1.0
        if not self.series.gradients_bytes or not like.gradients_bytes:
            raise NothingToSayError("no record says how large the gradients are; records of this version do")
        return like.gradients_bytes / self.series.gradients_bytes


def _at(series: Series, workers: int) -> tuple[float, float | None, float | None, int]:
    """(rate [images/s], its interval if there is one, repeats) of what was measured with so many workers."""
    point = next(point for point in series.points if int(point["workers"]) == workers)
    low, high = (point[f"throughput_images_per_s{end}"] for end in ("_low", "_high"))
    low, high = (None if pd.isna(end) else float(end) for end in (low, high))
    return float(point["throughput_images_per_s"]), low, high, int(point["repeats"])


@cache
def batch_error() -> float:
    """By what factor per doubling of the batch the prediction errs at most, in 95 % of published pairs of one worker.

    Pairs are series of one source that differ in their batch only, as their names say (`...-b128`).
    """
    priors, errors = _priors.read(), []
    for one, other in permutations(_priors.published(), 2):
        first, second = re.fullmatch(r"(.*)-b\d+", one.name), re.fullmatch(r"(.*)-b\d+", other.name)
        if not (first and second) or one.source != other.source or first[1] != second[1]:
            continue
        was, now = one.measured, other.measured
        if was.workers[0] == now.workers[0] == 1 and was.batch_per_worker[0] != now.batch_per_worker[0]:
            said = last_rate.predict(was, [1], [now.batch_per_worker[0]], priors).images_per_s[0]
            doublings = abs(math.log2(now.batch_per_worker[0] / was.batch_per_worker[0]))
            errors.append(abs(math.log(now.images_per_s[0] / said)) / doublings)
    errors.sort()
    return math.exp(errors[min(len(errors) - 1, math.ceil(0.95 * len(errors)) - 1)])


def _checked(series: Series, made: Rate) -> Rate:
    """Raises NothingToSayError if the interval says nothing."""
    if made.high > WIDEST * made.low:
        raise NothingToSayError(
            f"the interval would span more than a factor of {WIDEST:g}; measure {2 * series.measured.workers[-1]} "
            "workers or more, with repeats"
        )
    return made


def counts(series: Series, asked: Sequence[int], doublings: int) -> list[int]:
    """Worker counts of the rows: the measured ones, and those asked, or so many doublings beyond."""
    largest = series.measured.workers[-1]
    beyond = asked or [n for k in range(1, doublings + 1) if (n := largest * 2**k) <= MOST_WORKERS]
    return sorted({*series.measured.workers, *beyond})
