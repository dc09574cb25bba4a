"""Lines that a pattern matched, and what they are about: training, or a validation or a pause.

All functions here are pure.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ddlbench.core.program import COUNTS, Program
from ddlbench.core.spec import RunSpec
from ddlbench.run import log_text
from ddlbench.run.readings._values import Line, UnreadError

MOST_ROUNDED = 0.025  # of all that is counted: more makes a rate wrong
# Words of lines that programs print when they do something else than train.
ELSE = re.compile(
    r"(?<![a-z])(?:val(?:id(?:ation|at(?:e|ed|ing))?)?|eval(?:uation|uat(?:e|ed|ing))?|test(?:ing)?"
    r"|checkpoint(?:s|ing|ed)?|ckpts?|sav(?:e|ed|ing))(?![a-z])",
    re.I,
)
VALUE = re.compile(r"\d\.\d")  # of such a word: a line of training may say `val_loss 0.5`, too


@dataclass
class Match:
    """A match of a pattern in a line."""

    line: Line
    pattern: re.Pattern[str]
    found: log_text.Found

    def value(self, name: str) -> float | None:
        return self.found.values.get(name)


def found_in(lines: Sequence[Line], patterns: Sequence[re.Pattern[str]]) -> list[Match]:
    """Return the matches of all patterns, in the order of the lines."""
    found = []
    for line in lines:
        for text in log_text.pieces(line.text):
            for pattern in patterns:
                if one := log_text.find(pattern, text):
                    found.append(Match(line, pattern, one))
    return found


def _counts(match: Match, program: Program) -> bool:
    """Return whether a match shows how far training is."""
    names = {*match.pattern.groupindex}
    if program.steps_per_line and not {*COUNTS} & names:
        return "loss" in names and match.value("loss") is not None
    return any(
        match.value(name) is not None and math.isfinite(match.value(name) or 0.0) for name in COUNTS
    )


def of_steps(found: Sequence[Match], program: Program) -> list[Match]:
    """Return the matches that show how far training is.

    A line of a validation or a pause says where it stands, too (`epoch 3: val loss 0.5`). That is
    no progress where other lines show it.
    """
    counting = [match for match in found if _counts(match, program)]
    of_training = [match for match in counting if not is_of_else(match)]
    return of_training if len(of_training) > 1 else counting


def is_of_else(match: Match) -> bool:
    """Return whether the line is of something else than training: by a group, or by words before
    its count (`Validation: 30%|##  | 9/30`).
    """
    if {"top1", "eval_loss", "pause"} & {*match.found.said}:
        return True
    start, _ = match.found.spans.get(counter_of(match) or "loss", (0, 0))
    before = match.found.text[:start]
    return any(not VALUE.search(before, word.end()) for word in ELSE.finditer(before))


def counter_of(match: Match) -> str | None:
    """Return the group that says how far training is; the first of COUNTS."""
    return next((name for name in COUNTS if match.value(name) is not None), None)


def total_of(match: Match) -> float | None:
    """Return the total beside the count: that of group `of`, or what stands behind the number
    (`100/600`).
    """
    if match.value("of") is not None:
        return match.value("of")
    name = counter_of(match)
    if name not in ("step", "seen", "seen_all"):
        return None
    return log_text.total_behind(match.found.text, match.found.spans[name][1])


def of_training(matches: list[Match]) -> tuple[list[Match], list[float]]:
    """Return the lines of the training loop, and when lines of other loops were printed, such as
    bars of a validation: these have another total. Raises UnreadError where nobody can tell which
    is which.
    """
    totals = [total_of(match) for match in matches]
    how_many = Counter(total for total in totals if total is not None)
    if len(how_many) < 2 or len(how_many) > len(matches) / 4:
        return matches, []
    most, _ = how_many.most_common(1)[0]
    main = {
        log_text.words_of(m.found.text)
        for m, total in zip(matches, totals, strict=True)
        if total == most
    }
    others = [
        (m, total) for m, total in zip(matches, totals, strict=True) if total not in (most, None)
    ]
    alike = next(
        ((m, total) for m, total in others if log_text.words_of(m.found.text) in main), None
    )
    if alike:
        text = alike[0].line.text.strip()[:120]
        raise UnreadError(
            f"it prints counts of {most:g} and of {alike[1]:g} in lines that look alike ({text!r}):"
            " which of them are about training? The pattern must contain a word of these lines"
        )
    kept = [m for m, total in zip(matches, totals, strict=True) if total in (most, None)]
    return kept, [m.line.time_s for m, _ in others]


def is_rounded(match: Match, name: str) -> bool:
    return log_text.resolution(match.found.said[name]) > 1


def batch_of(name: str, spec: RunSpec) -> int:
    """Return the samples of a step that a group counts."""
    return spec.global_batch if name == "seen_all" else spec.batch_per_worker


def too_coarse(
    counts: Sequence[float], said: Sequence[str], of_one: float | None = None
) -> str | None:
    """Return why counts that are rounded tell no rate; None if they do.

    Steps and samples may be rounded to thousands or millions. Of epochs and percents `of_one` is
    how many steps one of them has; they are rounded to the most decimals that they show, as 0.5
    may be 0.50.
    """
    rounded = [log_text.resolution(text) for text in said]
    apart = max(rounded, default=0.0) if of_one is None else min(rounded, default=0.0) * of_one
    grown = sum(b - a for a, b in itertools.pairwise(counts) if b > a) * (of_one or 1)
    if apart <= 1 or apart <= MOST_ROUNDED * grown:
        return None
    unit = "" if of_one is None else " steps"
    return (
        f"its numbers are rounded to {apart:g}{unit} ({said[-1].strip()!r}), and count to"
        f" {grown:g}{unit} in all: too coarse for a rate. Let it print more digits, or run longer"
    )
