"""Patterns that could read what a program printed, each with what it reads and what supports it.

Lines of one kind share their words. Where numbers at one place of them grow, they may count steps,
epochs or samples: each way is tried by the reading itself, which says what confirms or contradicts
it.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ddlbench.core.spec import RunSpec
from ddlbench.run import log_text
from ddlbench.run.readings import MAY_BE_STEPS, Output, Reading, UnreadError, lines

MOST_KINDS = 6  # of lines, those that come most often
LEAST = 4  # lines of a kind
MOST_TAIL = 40  # characters before a number that its pattern holds
NUMBER, VALUE = r"[\d,]+", r"[-+\w.]+"
SAMPLE = (
    r"(?:samples?|images?|imgs?|pictures?|seqs?|sequences?|sentences?|pairs?|tokens?|tok|examples?)"
)
RATE = re.compile(rf"\s*(?:{SAMPLE}\s*(?:/|per)\s*|/\s*)s(?:ec(?:onds?)?)?\b", re.I)
ALIKE = 0.05  # candidates whose steps and rates differ by no more read the same


@dataclass(frozen=True)
class Candidate:
    """A pattern, and what it reads: steps, samples per s, what supports it; or why it is
    refused.
    """

    pattern: str
    unit: str
    steps: int = 0
    rate: float = 0.0
    says: str = ""
    proved: bool = False
    refused: bool = False

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
    patterns = dict.fromkeys(found for texts in many for found in _patterns(texts, source.spec))
    tried = [_tried(source, pattern, unit) for pattern, unit in patterns]
    distinct: list[Candidate] = []
    for one in sorted(tried, key=lambda one: (one.refused, not one.proved)):
        if one.refused or not any(one.like(other) and one.unit == other.unit for other in distinct):
            distinct.append(one)
    return distinct


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
    loss = next(
        (place for place in places if re.search(r"loss", place.label) and not place.whole), None
    )
    loss = loss or next((place for place in places if "loss" in place.label), None)
    rate = next((place for place in places if RATE.match(place.behind)), None)
    epoch = next(
        (place for place in places if place.whole and log_text.EPOCHS.search(place.label)), None
    )
    extra = [(place, group) for place, group in ((loss, "loss"), (rate, "samples_per_s")) if place]
    for place in places:
        if not place.whole or not place.grows or place is loss or place is rate:
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
    """Return a pattern that finds all of these numbers in all lines; None without one."""
    parts: list[str] = []
    floors = [0] * len(texts)
    for place, group in sorted(groups, key=lambda one: one[0].spans[0]):
        kind = VALUE if group in ("loss", "samples_per_s") else NUMBER
        part = _located(texts, floors, place, group, kind)
        if part is None:
            return None
        if place.total and group in ("step", "seen", "seen_all"):
            part += r"\s*/\s*(?P<of>[\d,]+)"
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
    before = texts[0][max(floors[0], start - MOST_TAIL) : start]
    for size in range(1, len(before) + 1):
        tail = before[-size:]
        if size < len(before) and tail[0].isalnum() and before[-size - 1].isalnum():
            continue
        text = rf"\b{_general(tail)}" if tail[0].isalnum() else _general(tail)
        pattern = f"{text}(?P<{group}>{kind})"
        found = [
            re.compile(pattern).search(text, floor)
            for text, floor in zip(texts, floors, strict=True)
        ]
        if all(
            one and one.start(group) == span[0]
            for one, span in zip(found, place.spans, strict=True)
        ):
            if re.search("[A-Za-z]", tail):
                return pattern
            bare = bare or pattern
    return bare


def _general(text: str) -> str:
    """Return a pattern of a text in which numbers and blanks are any."""
    text = re.escape(text)
    text = re.sub(r"\d(?:(?:\\\.)?\d)*", r"[\\d.]+", text)
    return re.sub(r"(?:\\ )+", r"\\s*", text)


def _tried(source: Output, pattern: str, unit: str) -> Candidate:
    """Return what the reading makes of a pattern."""
    assert source.spec.program is not None
    program = replace(source.spec.program, reads="lines", patterns=(pattern,))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            run = lines.read(replace(source, spec=replace(source.spec, program=program)))
    except UnreadError as error:
        return Candidate(
            pattern, unit, says=str(error).removeprefix(f"pattern {pattern!r}: "), refused=True
        )
    steps, rate = counted(run)
    return Candidate(pattern, unit, steps, rate, run.proof.text, run.proof.proved)


def counted(run: Reading) -> tuple[int, float]:
    """Return the steps of a reading, and its samples per s while it trains; 0 where all lines came
    at once.
    """
    took_s = sum(row.took_s for row in run.rows if row.rank == 0)
    return len({row.step for row in run.rows}), sum(
        row.images for row in run.rows
    ) / took_s if took_s else 0.0
