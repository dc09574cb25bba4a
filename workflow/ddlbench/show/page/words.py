"""A sentence of the answer, and how its numbers are written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sentence:
    """One sentence, the question that it answers, how sure it is in words, the runs (ids) that it is made of, and
    audit rules that these break."""

    words: str
    sure: str
    runs: tuple[str, ...] = ()
    unfair: tuple[str, ...] = ()
    question: str = ""


def number(value: float) -> str:
    """Two digits that matter, all digits of numbers from 100 on."""
    if abs(value) >= 99.5:
        return f"{value:,.0f}"
    text = f"{value:.2g}"
    return f"{float(text):f}".rstrip("0").rstrip(".") if "e" in text else text


def between(low: float, high: float) -> str:
    """`6 to 9`; one number where both ends are written alike."""
    return " to ".join(dict.fromkeys(number(end) for end in (low, high)))


def percents(low: float, high: float) -> str:
    """Writes shares as `6 to 9 %`."""
    return f"{between(100 * low, 100 * high)} %"


def count(n: int, unit: str) -> str:
    """Writes `1 worker`, `2 workers`."""
    return f"{n} {unit.removesuffix('s') if n == 1 else unit}"
