"""What an answer is, and the small figure beside it: rows of values with their runs and intervals on one scale."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import pandas as pd

from ddlbench.analysis.statistics import Interval, over_repeats
from ddlbench.core import registry
from ddlbench.core.plural import count_of, digits, duration, told_apart, two_digits

NOISY = 10.0  # an interval whose ends are further apart than this factor says nothing, and stretches no axis
LOSS = 1.0  # points of top-1 that count as a loss
LOG = 20.0  # values further apart than this factor are drawn on a logarithmic scale


class Standing(StrEnum):
    """How surely an answer is told; the page says it beside the answer."""

    SURE, FASTER = "sure", "surely faster"
    TIE = "a tie"
    DEFAULT = "by default, not sure"
    AHEAD = "ahead, not sure"
    OPEN = "not sure"
    UNCLEAR = "no clear answer"


@dataclass(frozen=True)
class Point:
    """One row of a figure: a side, its value with its interval, and the value of each of its runs."""

    name: str
    interval: Interval
    runs: tuple[float, ...]
    taken: bool = False
    note: str = ""  # what to know of it: `the ceiling`, `not reached`
    candidate: bool = True  # whether it could be taken

    @property
    def noisy(self) -> bool:
        """Whether its interval is too wide to say anything."""
        low, high = self.interval.low, self.interval.high
        return low is not None and high is not None and not high <= NOISY * low

    @property
    def sure(self) -> bool:
        """Whether it has an interval that says something."""
        return self.interval.low is not None and not self.noisy

    @property
    def words(self) -> str:
        """`980`, with its interval: `980 (900 to 1,100)`."""
        middle = digits(self.interval.middle)
        if not self.runs:
            return middle
        if self.noisy:
            return f"{middle} (too noisy to say: {count_of(self.interval.n, 'repeat')})"
        if not self.sure:
            return f"{middle} (one run)"
        around = ends(self.interval)
        return f"{middle} ({around})" if around != middle else middle


@dataclass(frozen=True)
class Answer:
    """The answer to one question: what to take, how surely, sentences, the figure of the same quantity.

    `others` are what is folded: the same question's answers under other settings, one line each. `unfair` are rules of
    the audit that its runs break.
    """

    question: str
    take: str
    standing: Standing
    words: tuple[str, ...]
    measure: str = ""  # what the figure shows, with its unit
    points: tuple[Point, ...] = ()
    runs: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    unfair: tuple[str, ...] = ()

    @property
    def sure(self) -> bool:
        """Whether more runs would hardly change it."""
        return self.standing in (Standing.SURE, Standing.FASTER)

    @property
    def scale(self) -> "Scale":
        return Scale.fit(self.points)


@dataclass(frozen=True)
class Scale:
    """Where values stand in a figure, in percent of its width."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def fit(cls, points: Sequence[Point]) -> "Scale":
        """Reaches over all runs, and over intervals up to half below and above them."""
        values = [value for point in points for value in (*point.runs, point.interval.middle)]
        if not values:
            return cls(0.0, 1.0)
        least, most = min(values), max(values)
        bounds = [end for point in points if point.sure for end in (point.interval.low, point.interval.high) if end]
        low, high = max(min([least, *bounds]), least / 1.5), min(max([most, *bounds]), most * 1.5)
        if not high > low:
            low, high = low * 0.9, high * 1.1
        return cls(low, high, high > LOG * low > 0)

    @property
    def ticks(self) -> list[tuple[str, str]]:
        """Where round numbers stand, and what they are: two to five of 1, 2 and 5 times powers of ten."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            found = [value for k in decades for n in (1, 2, 5) if self.low <= (value := float(f"{n}e{k}")) <= self.high]
            found = [value for value in found if f"{value:e}"[0] == "1"] if len(found) > 5 else found
        else:
            power = 10.0 ** math.floor(math.log10((self.high - self.low) / 2))
            step = power * max((n for n in (1, 2, 5) if n * power * 2 <= self.high - self.low), default=1)
            least, most = self.low / step - 1e-9, self.high / step + 1e-9  # an end that is round has a tick
            found = [n * step for n in range(math.ceil(least), math.floor(most) + 1)]
        return [(self.at(value), digits(value)) for value in found]

    def at(self, value: float) -> str:
        """`37.5%`, with a little room at both ends."""
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return f"{3 + 94 * (value - low) / ((high - low) or 1):.1f}%"


def point(name: str, values: Sequence[float], most: float = math.inf) -> Point:
    """The row of a side's values of its repeats, positive numbers of at most `most`."""
    interval = over_repeats(values)
    if interval.high is not None and interval.high > most:
        interval = replace(interval, high=most)
    return Point(name, interval, tuple(values))


def learned(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs that say how well they learned, with `top1` in percent."""
    return runs[runs["final_top1"].notna()].assign(top1=lambda table: (100 * table["final_top1"]).clip(0.01))


def loads_nothing(loader: Any) -> bool:
    """Whether a loader makes up its pictures, so that a training with it learns nothing."""
    return loader in registry.members("loaders") and not registry.member("loaders", loader).LEARNS


def learning(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that read what they learn from; programs and records of others do."""
    return runs[~runs["loader"].map(loads_nothing).astype(bool)]


def spent(runs_s: float, workers_s: float, worker: str) -> str:
    """`(2.3 h of runs, 4.6 GPU hours)`: what more runs take, one after the other [s], and all their workers [s]."""
    hours = f", {digits(workers_s / 3600)} {worker} hours" if workers_s >= 3600 else ""
    return f"({duration(runs_s, two_digits)} of runs{hours})"


def ends(interval: Interval) -> str:
    """`0.92 to 1.05`, of an interval that has ends."""
    assert interval.low is not None and interval.high is not None
    return told_apart(interval.low, interval.high)


def ids(runs: pd.DataFrame) -> tuple[str, ...]:
    """The runs of a table."""
    return tuple(str(run) for run in runs["run"])
