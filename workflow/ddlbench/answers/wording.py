"""Words for answers, made once from the templates beside this file; page, terminal and `study.json`
show the same.

Nothing is decided here, and nothing is read back out of what is made. The template of a question
has one macro per part: `question`, `take`, `line` (the evidence in one sentence), `text` (what
else), `measure` (of the figure), and `other` (another setting, in a line). `_common.jinja` has the
words that all share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from ddlbench.analysis import together
from ddlbench.answers import Answer, Candidate, Certainty, Row
from ddlbench.answers.choose import First
from ddlbench.core.formatting import (
    count_of,
    digits,
    duration,
    listed,
    runs_each,
    two_digits,
    with_distinct_ends,
)

TEMPLATES = Path(__file__).parent / "templates"
PARTS = ("question", "take", "line", "text", "measure")
FEW = 4  # values of a sentence


@dataclass(frozen=True)
class Nouns:
    """The words of a study for its worker, several of them, their hours, and what a step counts."""

    worker: str = "worker"
    sample: str = "images"

    @property
    def unit(self) -> str:
        """Return what workers are called."""
        return f"{self.worker}s"

    @property
    def hours(self) -> str:
        """Return what their hours are called."""
        return f"{self.worker} hours"


@dataclass(frozen=True)
class ToldRow:
    """The words of a row of an answer's figure."""

    name: str
    note: str
    value: str


@dataclass(frozen=True)
class Told:
    """The words of an answer."""

    question: str
    take: str
    certainty: str
    line: str
    text: str
    measure: str
    rows: tuple[ToldRow, ...]
    others: tuple[str, ...]

    @property
    def words(self) -> str:
        """Return all its sentences."""
        return " ".join(filter(None, (self.line, self.text)))


def told(answer: Answer, nouns: Nouns) -> Told:
    """Return the words of an answer."""
    own, common = _module(f"{answer.question}.jinja", nouns), _module("_common.jinja", nouns)
    rows = tuple(
        ToldRow(
            _plain(common.name(row.candidate)),
            _plain(common.note(row.note, row.ideal)),
            _plain(common.value(row, answer.measure)),
        )
        for row in answer.rows
    )
    parts = {part: _plain(getattr(own, part)(answer)) for part in PARTS}
    others = tuple(_plain(own.other(one)) for one in answer.also)
    return Told(**parts, certainty=_plain(common.certainty(answer)), rows=rows, others=others)


def judged(first: First, nouns: Nouns) -> str:
    """Return what stands below the answers: how many are sure, and what the audit warns of."""
    return _plain(_module("_first.jinja", nouns).judged(first)) if first.answers else ""


def not_asked(first: First, nouns: Nouns) -> tuple[str, ...]:
    """Return the questions that the study does not cover, each with the keys that would add it."""
    module = _module("_first.jinja", nouns)
    return tuple(f"{_plain(module.not_asked(question))} {key}" for question, key in first.not_asked)


def lines(first: First, nouns: Nouns) -> list[str]:
    """Return the answers for a terminal, a line each."""
    found = []
    for answer in first.answers:
        words = told(answer, nouns)
        unfair = f" NOT FAIR: {', '.join(answer.unfair)}." if answer.unfair else ""
        found.append(f"{words.question} {words.take} ({words.certainty}).{unfair} {words.line}")
    return [*found, *filter(None, [judged(first, nouns)])]


def _plain(text: Any) -> str:
    """Return the text of a macro with single blanks."""
    return " ".join(str(text).split())


def _module(name: str, nouns: Nouns) -> Any:
    """Return the macros of a template, with the study's nouns."""
    return _environment(TEMPLATES).get_template(name).make_module({"s": nouns})


@cache
def _environment(folder: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), undefined=jinja2.StrictUndefined, autoescape=False
    )
    environment.filters |= {
        "digits": digits,
        "whole": lambda number: f"{number:,.0f}",
        "count_of": count_of,
        "duration": lambda seconds: duration(seconds, two_digits),
        "listed": listed,
        "titles": lambda more: [together.title(name, value) for name, value in more],
        "interval": _interval,
        "runs_each": lambda rows: runs_each([row.n for row in rows]),
        "few": _few,
    }
    return environment


def _interval(value: Any) -> str:
    """Return ` (0.92 to 1.05)`, of whatever has a middle, a low and a high end; nothing where they
    read alike.
    """
    named = (
        value
        if isinstance(value, Mapping)
        else {end: getattr(value, end) for end in ("middle", "low", "high")}
    )
    low, high = named["low"], named["high"]
    if low is None or high is None:
        return ""
    ends = with_distinct_ends(low, high)
    return "" if ends == digits(named.get("middle", math.nan)) else f" ({ends})"


def _few(rows: Sequence[Row], taken: Candidate) -> Iterable[Row]:
    """Return the rows that a sentence names: the first, the one taken, the one after it, and the
    last.
    """
    if len(rows) <= FEW:
        return rows
    at = next((n for n, row in enumerate(rows) if row.candidate == taken), 0)
    return [rows[n] for n in sorted({0, at, min(at + 1, len(rows) - 1), len(rows) - 1})]


def is_sure(answer: Answer) -> bool:
    """Return whether more runs would hardly change the answer."""
    return answer.certainty is Certainty.SURE
