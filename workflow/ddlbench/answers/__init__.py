"""Answers of the first screen: the values that questions answer with. `questions/` has one file per
question.

A question is a pure function from tables and from what has been chosen so far to a frozen `Answer`.
Nothing here is a sentence: `wording.py` makes them, from the template of the question's name in
`templates/`, for page, terminal and `study.json`. `choose.py` asks all of them until framework,
loader, form, workers, batch and schedule fit together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ddlbench.analysis import over_settings
from ddlbench.analysis.over_settings import Pooled
from ddlbench.analysis.price import FREE, Tariff
from ddlbench.core import registry

if TYPE_CHECKING:
    import pandas as pd

LOSS = 1.0  # points of top-1 that count as a loss
# sides without a significant difference, and surely differ by less than this, are alike for all
# that people do
ALIKE = 0.05
SAME = 0.01  # sides that differ significantly, and surely differ by less than this, are alike too
PLAIN = (
    "ddp",
    "native",
    "torchvision",
    "raw",
)  # they come with PyTorch: nothing else is to be installed


class Goal(StrEnum):
    """The goal that a study has for its workers (key `goal`)."""

    BALANCED = "balanced"  # most speed per money: least time x hours
    FASTEST = "fastest"  # least time
    CHEAPEST = "cheapest"  # least money, or hours of workers
    TARGET = "target"  # least time to the accuracy that a figure names


class Certainty(StrEnum):
    """The certainty of an answer."""

    SURE = "sure"
    FEW = "few"  # as far as one or two runs per setting say
    AHEAD = "ahead"  # ahead so far, not significantly: more runs might change it
    TIE = "tie"  # alike for all that people do
    OPEN = "open"  # nothing says
    UNPROVED = "unproved"  # sure, if what was read of programs is right: nothing proves it


class Note(StrEnum):
    """A remark that people must know about a row."""

    CEILING = "ceiling"  # loads nothing
    LOSES = "loses"  # accuracy
    OTHER_FORM = "other-form"
    BASE = "base"


@dataclass(frozen=True)
class Candidate:
    """A candidate for an answer, by the settings that distinguish it from the others; the other
    settings are None.
    """

    framework: str | None = None
    loader: str | None = None
    form: str | None = None
    workers: int | None = None
    batch: int | None = None
    schedule: str | None = None
    model: str | None = None
    machine: str | None = None
    way: str | None = None
    more: tuple[tuple[str, Any], ...] = ()  # further settings by their names

    @property
    def known(self) -> dict[str, Any]:
        """Return the settings that it has."""
        return {name: value for name, value in vars(self).items() if value not in (None, ())}


@dataclass(frozen=True)
class Dot:
    """A measured value with its runs; `warned`: the audit has a finding on one of them."""

    value: float
    runs: tuple[str, ...] = ()
    warned: bool = False


@dataclass(frozen=True)
class Row:
    """A candidate's value: the middle of `n` runs or pairs over so many settings, with its 95 %
    confidence interval.
    """

    candidate: Candidate
    middle: float
    low: float | None = None
    high: float | None = None
    n: int = 1
    settings: int = 1
    dots: tuple[Dot, ...] = ()
    taken: bool = False
    note: Note | None = None
    ideal: float | None = None

    @property
    def runs(self) -> tuple[str, ...]:
        """Return the runs that it rests on, each once."""
        return tuple(dict.fromkeys(run for dot in self.dots for run in dot.runs))

    @property
    def warnings(self) -> int:
        """Return how many of its dots have a warning."""
        return sum(dot.warned for dot in self.dots)


@dataclass(frozen=True)
class Over:
    """A ratio, or a difference in points, of two candidates over all settings, and in how many of
    these it is ahead.
    """

    candidate: Candidate
    against: Candidate
    middle: float
    low: float | None
    high: float | None
    settings: int
    leads: int
    n: int
    verdict: int


@dataclass(frozen=True)
class Turns:
    """The place where the lead changes: up to `at` workers one candidate leads, beyond it the
    other.
    """

    at: float
    below: Over
    above: Over


@dataclass(frozen=True)
class Settles:
    """The cheapest further runs that would probably confirm or change what to take: `repeats` more
    of each setting.
    """

    candidates: tuple[Candidate, ...]
    repeats: int
    runs: int
    runs_s: float
    workers_s: float
    price: float | None = None
    currency: str | None = None


@dataclass(frozen=True)
class Fact:
    """A fact that the answer rests on, or that goes with it: its name and its values, which
    templates use.
    """

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Also:
    """The same question under other settings: where, what is ahead there of what, and by how
    much. `shown` is whose ratio this is, where that is not what is taken.
    """

    where: Candidate
    taken: Candidate
    against: Candidate | None
    middle: float
    low: float | None
    high: float | None
    n: int
    verdict: int = 0
    shown: Candidate | None = None


@dataclass(frozen=True)
class Answer:
    """The answer to a question. `rule` names how it was decided, `measure` what rows show, in
    `unit`.

    `over` is the pooled ratio of what is taken and the one that matters beside it; `as_good` are
    those that do not differ significantly from what is taken. `unfair` are rules of the audit that
    its runs break, `warned` the runs with a warning, `unproved` runs of programs of which nothing
    proves what was read, or that their ranks trained together.
    """

    question: str
    rule: str
    certainty: Certainty
    taken: Candidate | None = None
    among: tuple[Candidate, ...] = ()
    as_good: tuple[Candidate, ...] = ()
    over: Over | None = None
    turns: Turns | None = None
    measure: str = ""
    unit: str = ""
    rows: tuple[Row, ...] = ()
    hidden: int = 0  # rows that are not shown
    settles: Settles | None = None
    why: tuple[Fact, ...] = ()
    also: tuple[Also, ...] = ()
    runs: tuple[str, ...] = ()
    unfair: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()
    unproved: tuple[str, ...] = ()
    open: tuple[
        str, ...
    ] = ()  # runs of the settings of which more repeats might change what is taken

    def fact(self, name: str) -> Fact | None:
        """Return the first fact of that name."""
        return next((fact for fact in self.why if fact.name == name), None)


@dataclass(frozen=True)
class Choice:
    """The choice, decided as one: None where the study does not ask."""

    framework: str | None = None
    loader: str | None = None
    form: str | None = None
    workers: int | None = None
    batch: int | None = None
    schedule: str | None = None

    def with_(self, answer: Answer | None, fields: Sequence[str]) -> Choice:
        """Return the choice with these of its fields as the answer recommends them; None where it
        recommends nothing.
        """
        recommended = answer.taken if answer and answer.taken else Candidate()
        return replace(self, **{name: getattr(recommended, name) for name in fields})


@dataclass(frozen=True)
class Given:
    """The material of answers: the study's tables, what its machine costs, and the runs that the
    audit has findings on.
    """

    tables: Mapping[str, pd.DataFrame]
    tariff: Tariff = FREE
    goal: Goal = Goal.BALANCED
    ours: bool = True
    sample: str = "images"
    broken: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # rules with an error, by run
    warned: frozenset[str] = frozenset()  # runs with a warning or an error
    looks: int = 1  # how often the study may be looked at, if it makes repeats until it is decided

    def counted_comparisons(self, comparisons: float) -> float:
        """Return as one of how many comparisons each verdict counts: these, which are read
        together, times the factor for several looks (`over_settings.LOOKS`).
        """
        return comparisons * over_settings.LOOKS[self.looks]

    @cached_property
    def runs(self) -> pd.DataFrame:
        """Return the runs that can be compared."""
        from ddlbench.analysis import together

        return together.usable(self.tables["runs"])

    @cached_property
    def unproved(self) -> frozenset[str]:
        """Return the runs of programs that nothing confirms (column `confirmed`)."""
        if "confirmed" not in self.runs:
            return frozenset()
        return frozenset(
            self.runs.loc[self.runs["confirmed"].eq(False).fillna(False), "run"].astype(str)
        )

    @cached_property
    def with_real_data(self) -> pd.DataFrame:
        """Return the runs whose loader reads real samples; all runs, where a study has none with
        such a loader.
        """
        kept = self.runs[~self.runs["loader"].map(loads_nothing).astype(bool)]
        return kept if len(kept) else self.runs

    @cached_property
    def with_top1(self) -> pd.DataFrame:
        """Return the runs with an accuracy, which column `top1` has in percent."""
        runs = self.runs[self.runs["final_top1"].notna()]
        return runs.assign(top1=(100 * runs["final_top1"].astype("float64")).clip(0.01))

    @cached_property
    def cache(self) -> dict[str, Any]:
        """Return results that do not depend on the choice, by names that questions give them."""
        return {}

    def cached(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return the cached result of this name; compute and keep it the first time."""
        if name not in self.cache:
            self.cache[name] = compute()
        return self.cache[name]


def loads_nothing(loader: Any) -> bool:
    """Return whether a loader makes up its pictures, so that a training with it learns nothing."""
    return loader in registry.members("loaders") and not registry.member("loaders", loader).LEARNS


def ratio_of(found: Pooled, candidate: Candidate, against: Candidate, of_logs: bool = True) -> Over:
    """Return the pooled result of two candidates: as a ratio; for values that are no logarithms, as
    their difference.
    """

    def as_shown(value: float | None) -> float | None:
        return math.exp(value) if of_logs and value is not None else value

    middle = as_shown(found.middle)
    assert middle is not None
    bounds = as_shown(found.low), as_shown(found.high)
    return Over(
        candidate, against, middle, *bounds, found.settings, found.leads, found.n, found.verdict
    )


def certainty_of(over: Over) -> Certainty:
    """Return how certain it is that the candidate of a ratio is ahead, by itself."""
    near = SAME if over.verdict else ALIKE
    if (
        over.low is not None
        and over.high is not None
        and over.low > 1 - near
        and over.high < 1 + near
    ):
        return Certainty.TIE
    if over.verdict > 0:
        return Certainty.SURE if over.n > 1 else Certainty.FEW
    if over.low is None or (over.n < 3 and over.low > 1):
        return Certainty.FEW
    return Certainty.AHEAD
