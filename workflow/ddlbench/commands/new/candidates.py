"""Patterns that could read what a program printed, each with what it reads and what supports it.

Lines of one kind share their words. Where numbers at one place of them grow, they may count steps,
epochs or samples: each way is tried by the reading itself, which says what confirms or contradicts
it.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import yaml

from ddlbench.core import registry
from ddlbench.core.spec import RunSpec
from ddlbench.run import log_text
from ddlbench.run.readings import MAY_BE_STEPS, Output, Reading, ReadingMember, UnreadError

MOST_KINDS = 6  # of lines, those that come most often
LEAST = 4  # lines of a kind
FEWEST_RATES = 2  # lines with a rate, where these are no lines with a count
MOST_RATES = 2  # patterns of such lines that are tried
MOST_TAIL = 40  # characters before a number that its pattern holds
NUMBER, VALUE = r"\d+(?:,\d{3})*", r"[-+\w.]+"
LOSS = re.compile(r"loss(?!.?scale)", re.I)
OF_TIME = re.compile(r"\s*(?:ms|s|secs?|seconds?|min|minutes?|h|hours?)\b", re.I)
# A rate of any word counts samples, unless the word is one of these.
NO_SAMPLE = (
    r"(?:it|iters?|iterations?|steps?|(?:mini_?)?batch(?:es)?|updates?|epochs?|ms|s|secs?"
    r"|[kmgt]?i?b|[kmgt]?bits?|bytes?|[kmgt]?flops?|requests?|req|files?|ops?)(?![A-Za-z])"
)
WORD = rf"(?!{NO_SAMPLE})[A-Za-z]{{2,24}}"
SECOND = r"s(?:ec(?:onds?)?)?\b"
RATE = re.compile(rf"\s*\(?(?:{WORD}\s*(?:/|per)\s*|/\s*){SECOND}", re.I)
RATE_BEFORE = re.compile(
    rf"(?:^|[^a-z])(?:{WORD}(?:/|_per_| per ){SECOND}|throughput|ips)\W*$", re.I
)
EPOCH_NAME = log_text.EPOCHS
ALIKE = 0.05  # candidates whose steps and rates differ by no more read the same


@dataclass(frozen=True)
class Candidate:
    """Keys of the program's file, and what they read: steps, samples per s, what supports it; or
    why it is refused.
    """

    keys: Mapping[str, Any]
    unit: str
    steps: int = 0
    rate: float = 0.0
    says: str = ""
    proved: bool = False
    refused: bool = False

    @property
    def written(self) -> list[str]:
        """Return the keys as lines of the program's file."""
        lines = [
            yaml.safe_dump({key: value}, default_flow_style=True, sort_keys=False, width=10_000)
            for key, value in self.keys.items()
        ]
        return [line.strip()[1:-1] for line in lines]

    def like(self, other: Candidate) -> bool:
        """Return whether both read the same."""
        near = abs(self.steps - other.steps) <= max(1, ALIKE * other.steps)
        return near and abs(self.rate - other.rate) <= ALIKE * other.rate


def candidates(source: Output) -> list[Candidate]:
    """Return the patterns that fit, those that something proves first, then those that are
    refused.
    """
    kinds: dict[str, list[str]] = {}
    for line in source.lines:
        for text in log_text.pieces(line.text):
            plain = log_text.BLANKS.sub(" ", log_text.plain(text))
            kinds.setdefault(log_text.words_of(plain), []).append(plain)
    many = sorted(
        (texts for texts in kinds.values() if len(texts) >= LEAST), key=len, reverse=True
    )[:MOST_KINDS]
    counting = dict.fromkeys(found for texts in many for found in _patterns(texts, source.spec))
    rates = [
        rate
        for texts in kinds.values()
        if len(texts) >= FEWEST_RATES
        for rate in _rates(texts)
        if not any(re.search(pattern, texts[0]) for pattern, _ in counting)
    ]  # that stand in lines of their own
    tried = [
        _tried(source, (pattern, *rate), unit)
        for pattern, unit in counting
        for rate in (
            [(one,) for one in rates[:MOST_RATES]] if "samples_per_s" not in pattern else []
        )
        + [()]
    ]
    return distinct(tried)


def distinct(tried: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates that read differently, those that something proves first, then those that
    are refused.
    """
    found: list[Candidate] = []
    for one in sorted(tried, key=lambda one: (one.refused, not one.proved)):
        if one.refused or not any(one.like(other) and one.unit == other.unit for other in found):
            found.append(one)
    return found


def chosen(found: Sequence[Candidate]) -> Candidate | None:
    """Return the one that fits; None where none or several do that read differently. What is proved
    goes first.

    What was refused only because it may be of another unit could fit as well.
    """
    fit = [one for one in found if one.proved] or [one for one in found if not one.refused]
    if fit and not fit[0].proved and any(MAY_BE_STEPS in one.says for one in found):
        return None
    return fit[0] if fit and all(one.like(fit[0]) for one in fit) else None


def _patterns(texts: Sequence[str], spec: RunSpec) -> Iterator[tuple[str, str]]:
    """Yield patterns for lines of one kind, each with the unit of its count."""
    places = _places(texts)
    loss = _loss(places)
    rate = next((place for place in places if place.is_rate), None)
    epoch = next(
        (place for place in places if place.whole and log_text.EPOCHS.search(place.label)), None
    )
    extra = [(place, group) for place, group in ((loss, "loss"), (rate, "samples_per_s")) if place]
    for place in places:
        if not place.whole or not place.grows or place is loss or place is rate or place.is_time:
            continue
        units = ["epoch"] if place is epoch else ["step", "seen", "seen_all"]
        if spec.workers == 1 and "seen_all" in units:
            units.remove("seen_all" if place.falls else "seen")
        for unit in units:
            groups = [(place, unit), *extra]
            if epoch and place is not epoch and place.falls:
                groups.append((epoch, "epoch"))
            for some in (groups, [g for g in groups if g[1] != "samples_per_s"]):
                pattern = _joined(texts, some)
                if pattern:
                    yield pattern, unit


def _loss(places: Sequence[Place]) -> Place | None:
    """Return the loss of training; of several the total, None where none is called so."""
    losses = [place for place in places if LOSS.search(place.label)]
    losses = [place for place in losses if not log_text.VALIDATION.search(place.label)]
    losses = [place for place in losses if not place.whole] or losses
    if len(losses) > 1:
        losses = [place for place in losses if log_text.TOTAL_LOSS.search(place.label)]
    return losses[0] if losses else None


def _rates(texts: Sequence[str]) -> list[str]:
    """Return patterns of the rates that lines of one kind have."""
    found = [
        _joined(texts, [(place, "samples_per_s")]) for place in _places(texts) if place.is_rate
    ]
    return [pattern for pattern in found if pattern]


def names_rate(name: str) -> bool:
    """Return whether a column's name says a rate of samples."""
    return bool(RATE_BEFORE.search(name.lower()))


@dataclass(frozen=True)
class Place:
    """The place of a number that stands in all lines of a kind: where, and how it moves."""

    label: str
    spans: tuple[tuple[int, int], ...]
    whole: bool
    grows: bool
    falls: bool
    total: bool
    behind: str

    @property
    def is_rate(self) -> bool:
        """Return whether words beside it say a rate of samples."""
        return bool(RATE.match(self.behind) or RATE_BEFORE.search(self.label))

    @property
    def is_time(self) -> bool:
        """Return whether words beside it say a time."""
        return bool(log_text.TIMED.search(self.label) or OF_TIME.match(self.behind))

    @property
    def rate_unit(self) -> str:
        """Return a pattern of the unit behind it, if it is a rate's."""
        unit = RATE.match(self.behind)
        return _general(unit[0]) + r"\b" if unit else ""


def _places(texts: Sequence[str]) -> list[Place]:
    rows = []
    for text in texts:
        row: dict[tuple[str, int], log_text.Token] = {}
        for token in log_text.tokens(text):
            row[token.label, sum(1 for name, _ in row if name == token.label)] = token
        rows.append(row)
    shared = [name for name in rows[0] if all(name in row for row in rows)]
    places = []
    for name in shared:
        of = [row[name] for row in rows]
        moved = [b.value - a.value for a, b in pairwise(of)]
        ups, downs = sum(one > 0 for one in moved), sum(one < 0 for one in moved)
        grows = ups > 0 and downs <= ups
        spans = tuple(token.span for token in of)
        whole, total = (
            all(token.whole for token in of),
            all(token.total is not None for token in of),
        )
        places.append(Place(name[0], spans, whole, grows, downs > 0, total, of[0].behind))
    return places


def _joined(texts: Sequence[str], groups: Sequence[tuple[Place, str]]) -> str | None:
    """Return a pattern that finds all of these numbers in all lines; None without one. A rate's
    unit is part of it, unless what comes next needs these letters.
    """
    return _with_units(texts, groups, True) or _with_units(texts, groups, False)


def _with_units(
    texts: Sequence[str], groups: Sequence[tuple[Place, str]], units: bool
) -> str | None:
    parts: list[str] = []
    floors = [0] * len(texts)
    for place, group in sorted(groups, key=lambda one: one[0].spans[0]):
        kind = VALUE if group in ("loss", "samples_per_s") else NUMBER
        part = _located(texts, floors, place, group, kind)
        if part is None:
            return None
        if place.total and group in ("step", "seen", "seen_all"):
            part += rf"\s*/\s*(?P<of>{NUMBER})"
        part += place.rate_unit if units and group == "samples_per_s" else ""
        parts.append(part)
        floors = [span[1] for span in place.spans]
    pattern = ".*?".join(parts)
    return pattern if all(re.search(pattern, text) for text in texts) else None


def _located(
    texts: Sequence[str], floors: Sequence[int], place: Place, group: str, kind: str
) -> str | None:
    """Return the shortest pattern with a word in it that finds the number at its place in all
    lines, looked for from `floors` on.
    """
    start, bare = place.spans[0][0], None

    def finds(pattern: str) -> bool:
        found = [
            re.compile(pattern).search(text, floor)
            for text, floor in zip(texts, floors, strict=True)
        ]
        return all(
            one is not None
            and one.start(group) == span[0]
            and (kind == VALUE or one.end(group) == span[1])
            for one, span in zip(found, place.spans, strict=True)
        )

    if all(span[0] == 0 for span in place.spans):  # lines that begin with it
        pattern = f"^(?P<{group}>{kind})"
        return pattern if finds(pattern) else None
    before = texts[0][max(floors[0], start - MOST_TAIL) : start]
    for size in range(1, len(before) + 1):
        tail = before[-size:]
        if size < len(before) and tail[0].isalnum() and before[-size - 1].isalnum():
            continue
        text = rf"\b{_general(tail)}" if tail[0].isalnum() else _general(tail)
        pattern = f"{text}(?P<{group}>{kind})"
        if finds(pattern):
            if re.search("[A-Za-z]", tail):
                return pattern
            bare = bare or pattern
    return bare


def _general(text: str) -> str:
    """Return a pattern of a text in which numbers and blanks are any."""
    text = re.escape(text)
    text = re.sub(r"\d(?:(?:\\\.)?\d)*", r"[\\d.]+", text)
    return re.sub(r"(?:\\ )+", r"\\s*", text)


def _tried(source: Output, patterns: tuple[str, ...], unit: str) -> Candidate:
    """Return what the reading makes of patterns."""
    keys = {"lines": patterns[0] if len(patterns) == 1 else [*patterns]}
    return tried(source, "lines", keys, unit, patterns=patterns)


def tried(source: Output, way: str, keys: Mapping[str, Any], unit: str, **fields: Any) -> Candidate:
    """Return what a reading makes of the output by these keys, which are `fields` of the
    program.
    """
    assert source.spec.program is not None
    program = replace(source.spec.program, reads=way, **fields)
    member: ReadingMember = registry.member("readings", way)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            run = member.read(replace(source, spec=replace(source.spec, program=program)))
    except UnreadError as error:
        says = str(error)
        for pattern in fields.get("patterns", ()):
            says = says.removeprefix(f"pattern {pattern!r}: ")
        return Candidate(keys, unit, says=says, refused=True)
    steps, rate = counted(run)
    return Candidate(keys, unit, steps, rate, run.proof.text, run.proof.proved)


def counted(run: Reading) -> tuple[int, float]:
    """Return the steps of a reading, and its samples per s while it trains; 0 where all lines came
    at once.
    """
    took_s = sum(row.took_s for row in run.rows if row.rank == 0)
    return len({row.step for row in run.rows}), sum(
        row.images for row in run.rows
    ) / took_s if took_s else 0.0
