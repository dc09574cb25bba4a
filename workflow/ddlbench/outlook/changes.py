"""How a change moves the time of a step, between what is least and most possible, by a study's records.

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
from typing import Any

import pandas as pd

from ddlbench.analysis import together
from ddlbench.analysis.comparisons import TELLING, settings, telling
from ddlbench.analysis.prediction import Measured, TooLittleError, _priors, _series, last_rate
from ddlbench.analysis.prediction._priors import Priors
from ddlbench.analysis.scaling import interval_of
from ddlbench.core.roles import AXIS, SETTING
from ddlbench.settings.machine import Machine

AS_IT_IS = "as it is"
RATE = "throughput_images_per_s"
BANDWIDTH, NODE, BATCH, MODEL, PRECISION = "bandwidth", "workers_per_node", "batch_per_worker", "model", "precision"
# Keys of `what_if` in the configuration, with how legends and tables say a value.
KINDS = {
    BANDWIDTH: "{:g} x bandwidth between nodes",
    NODE: "{} workers per node",
    BATCH: "batch {} per worker",
    MODEL: "{}",
    PRECISION: "{}",
}
BACKWARD_SHARE = 2 / 3  # of a step's operations, by their number: a backward pass has two products for each one before
# An interval that spans more than this says nothing that anybody could use.
WIDEST = 10.0
# What series share but for a change.
NAMED = (*together.settings(AXIS, SETTING, without=["of_epochs"]), "precision")


@dataclass(frozen=True)
class Series:
    """Points of training alike in all but the number of workers. `settings` are NAMED and TELLING, None where unknown.

    `points` are rows of `analysis/scaling.py`; `images` of an epoch, `epochs` of the whole training; `gradients_bytes`
    and `backward_share` (of the computing of a step) are of its `runs`, None where no record says it. `apart` are the
    settings that its name says, because the series beside it differ in them; `whole` and `power_w` as in
    `_series.Scaling`.
    """

    settings: dict[str, Any]
    measured: Measured
    points: tuple[dict[str, Any], ...]
    images: float
    epochs: float
    gradients_bytes: float | None
    backward_share: float | None
    apart: tuple[str, ...] = ()
    whole: int | None = None
    power_w: float | None = None
    runs: tuple[str, ...] = ()

    @property
    def batches(self) -> dict[int, float]:
        """Images per step of one worker, by measured worker count."""
        return dict(zip(self.measured.workers, self.measured.batch_per_worker, strict=True))

    @property
    def batch(self) -> float:
        """Images per step of one worker at the largest measured count, which larger counts are computed for."""
        return self.measured.batch_per_worker[-1]

    def at(self, workers: int) -> dict[str, Any]:
        """The point that was measured with so many workers; empty if none was."""
        return next((point for point in self.points if int(point["workers"]) == workers), {})

    @property
    def name(self) -> str:
        """In a few words."""
        keys = ("model", "framework", "loader", "precision")
        words = [*dict.fromkeys(self.settings[key] for key in keys if self.settings[key]), *self.apart]
        if not self.settings["loader"]:  # of others' records the machine tells series apart
            words.append(str(self.settings["machine"]))
        batches = sorted(set(self.measured.batch_per_worker))
        span = " to ".join(f"{batch:g}" for batch in dict.fromkeys((batches[0], batches[-1])))
        if self.whole:
            return f"{', '.join(map(str, words))}, batch {self.whole} of all workers"
        return f"{', '.join(map(str, words))}, batch {span} per worker"


def all_series(runs: pd.DataFrame, workers_per_node: int | None) -> list[Series]:
    """All series in `runs`, the table of `collect`, whose batches are known.

    `workers_per_node` is the machine's; others' records say theirs.
    """
    lines = list(_series.lines(runs)) if len(runs) else []
    differ = [name for name in telling(pd.concat([line.points for line in lines])) if name != "model"] if lines else []
    return [_of_line(line, batches, differ, workers_per_node) for line in lines if (batches := line.batches)]


def _of_line(
    line: _series.Scaling, batches: tuple[float, ...], differ: Sequence[str], workers_per_node: int | None
) -> Series:
    computing, backward = _median(line.runs, "compute_s"), _median(line.runs, "backward_s")
    epochs, seen = _median(line.runs, "of_epochs"), _median(line.runs, "images_seen")
    return Series(
        settings={key: _known(line.runs, key) for key in (*NAMED, *TELLING)} | {"loader": _known(line.points, "named")},
        measured=line.measured(line.node(workers_per_node), batches),
        points=tuple({str(key): value for key, value in row.items()} for row in line.points.to_dict("records")),
        images=line.images,
        epochs=epochs or (seen or line.images) / line.images,
        gradients_bytes=_median(line.runs, "gradients_bytes"),
        backward_share=backward / computing if backward and computing else None,
        apart=tuple(settings(line.first.to_dict(), differ)) if line.ours else (),
        whole=line.whole,
        power_w=line.power_w,
        runs=tuple(sorted(line.runs["run"])),
    )


def _known(rows: pd.DataFrame, key: str) -> Any:
    """What all of the rows have in a column, None where that is null or the column is missing."""
    return None if key not in rows or pd.isna(rows[key].iloc[0]) else rows[key].iloc[0]


def _median(runs: pd.DataFrame, column: str) -> float | None:
    value = pd.to_numeric(runs[column], errors="coerce").median() if column in runs else float("nan")
    return None if pd.isna(value) else float(value)


@dataclass(frozen=True)
class Change:
    """One thing that is different; `value` is in the words of the configuration, None for `AS_IT_IS`."""

    kind: str = AS_IT_IS
    value: Any = None

    @property
    def name(self) -> str:
        """As legends and tables say it."""
        return KINDS.get(self.kind, AS_IT_IS).format(self.value)


@dataclass(frozen=True)
class ChangedRate:
    """Images/s of all workers with its 95 % interval, and how it was computed."""

    middle: float
    low: float
    high: float
    basis: str


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


@dataclass(frozen=True)
class Question:
    """What is asked: a change of a series at a worker count, beside other series of the study."""

    series: Series
    change: Change
    workers: int
    others: Sequence[Series]
    machine: Machine
    priors: Priors

    def rate(self) -> ChangedRate:
        """The rate after the change. Raises TooLittleError, which says which measurement would help."""
        rate = self._predicted()
        if self.change.kind == AS_IT_IS:
            return replace(rate, basis="last rate")
        if self.change.kind == NODE:
            return replace(rate, basis="last rate; effect of more nodes taken from published series")
        low, high, basis = self._factors()
        middle = rate.middle * math.sqrt(low * high)
        return self._checked(ChangedRate(middle, rate.low * low, rate.high * high, basis))

    def _checked(self, rate: ChangedRate) -> ChangedRate:
        """Raises TooLittleError if the interval says nothing."""
        if rate.high > WIDEST * rate.low:
            raise TooLittleError(
                f"the interval would span more than a factor of {WIDEST:g}; measure "
                f"{2 * self.series.measured.workers[-1]} workers or more, with repeats"
            )
        return rate

    @property
    def batch(self) -> float:
        """Images of a worker's step before the change: what was measured with so many workers, else with the most, or
        its share of those of all."""
        beyond = self.series.whole / self.workers if self.series.whole else self.series.batch
        return self.series.batches.get(self.workers, beyond)

    @property
    def batch_after(self) -> float:
        """That after the change."""
        return float(self.change.value) if self.change.kind == BATCH else self.batch

    def _predicted(self) -> ChangedRate:
        """By the prediction, which knows batch and node size. Raises TooLittleError."""
        kind, value, measured = self.change.kind, self.change.value, self.series.measured
        node = measured.workers_per_node
        if kind == BANDWIDTH and measured.workers[-1] <= node:
            within = f"all measured counts lie within one node of {node} workers"
            raise TooLittleError(f"{within}, where no network is seen; measure {2 * node}")
        at = int(value) if kind == NODE else None
        numbers = last_rate.predict(measured, [self.workers], [self.batch_after], self.priors, at)
        middle, low, high = (float(each[0]) for each in (numbers.images_per_s, numbers.low, numbers.high))
        return self._checked(ChangedRate(middle, low, high, ""))

    def _factors(self) -> tuple[float, float, str]:
        """What multiplies the rate, at least and at most, and why. Raises TooLittleError."""
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
        batches = [self.batch, self.batch_after]
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
            same = all(other.settings[key] == mine.settings[key] for key in NAMED if key not in free)
            shared = {*other.measured.workers} & {*mine.measured.workers}
            sizes = [(each.batch, each.whole) for each in (mine, other)]
            if same and other.settings[kind] == value and sizes[0] == sizes[1] and shared:
                return other
        return None

    def _computing(self) -> tuple[tuple[float, float], str]:
        """(r at least and at most, where from) of another precision or model. Raises TooLittleError."""
        kind, value, mine = self.change.kind, self.change.value, self.series
        if mine.settings[kind] == value:
            return (1.0, 1.0), "as it is"
        like = self._sibling()
        if like is not None:
            both, node = {*like.measured.workers} & {*mine.measured.workers}, mine.measured.workers_per_node
            count = max((n for n in both if n <= node), default=min(both))
            was, then = (interval_of(each.at(count), RATE) for each in (mine, like))
            basis = f"measured with {count} workers (n = {was.n} and {then.n})"
            if was.low is None or was.high is None or then.low is None or then.high is None:
                r = was.middle / then.middle
                return (r, r), f"{basis}: without repeats, its error is not in the interval"
            return (was.low / then.high, was.high / then.low), basis
        peaks = dict(self.machine.peak_tflops_per_worker) if kind == PRECISION else {}
        before, after = peaks.get(str(mine.settings[kind])), peaks.get(str(value))
        if before and after and mine.settings["machine"] == self.machine.name:
            r = before / after
            return (min(r, 1.0), max(r, 1.0)), "between no change and the ratio of the peaks of the machine's file"
        peak = "" if kind == MODEL else ", or write the peaks of both into peak_tflops_per_worker of the machine"
        raise TooLittleError(
            f"no record of {kind} {value} that is like these in all else; measure it with {mine.measured.workers[0]} "
            f"workers: one count is enough{peak}"
        )

    def _gradients(self) -> float:
        """s: of another model the ratio of gradients. Raises TooLittleError."""
        like = self._sibling() if self.change.kind == MODEL else None
        if like is None:  # the same model
            return 1.0
        if not self.series.gradients_bytes or not like.gradients_bytes:
            raise TooLittleError("no record says how large the gradients are; records of this version do")
        return like.gradients_bytes / self.series.gradients_bytes


@cache
def batch_error() -> float:
    """By what factor per doubling of the batch the prediction errs at most, in 95 % of published pairs of one worker.

    Pairs are series of one source that differ in their batch only, as their names say (`...-b128`).
    """
    priors, errors = _priors.read(), []
    for base, other in permutations(_priors.published(), 2):
        first, second = re.fullmatch(r"(.*)-b\d+", base.name), re.fullmatch(r"(.*)-b\d+", other.name)
        if not (first and second) or base.source != other.source or first[1] != second[1]:
            continue
        was, now = base.measured, other.measured
        if was.workers[0] == now.workers[0] == 1 and was.batch_per_worker[0] != now.batch_per_worker[0]:
            rate = last_rate.predict(was, [1], [now.batch_per_worker[0]], priors).images_per_s[0]
            doublings = abs(math.log2(now.batch_per_worker[0] / was.batch_per_worker[0]))
            errors.append(abs(math.log(now.images_per_s[0] / rate)) / doublings)
    errors.sort()
    return math.exp(errors[min(len(errors) - 1, math.ceil(0.95 * len(errors)) - 1)])
