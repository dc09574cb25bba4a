"""An answer as the page shows it: its words, and the small figure beside it, rows of values on one
scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ddlbench.answers import Answer, Row, wording
from ddlbench.answers.choose import First
from ddlbench.answers.wording import Nouns, Told, ToldRow
from ddlbench.core.formatting import digits

NOISY = 10.0  # an interval whose ends are further apart than this factor stretches no axis
LOG = 20.0  # values further apart than this factor are drawn on a logarithmic scale


@dataclass(frozen=True)
class Shown:
    """An answer with its words and its figure."""

    answer: Answer
    told: Told

    @property
    def sure(self) -> bool:
        """Return whether more runs would hardly change it."""
        return wording.is_sure(self.answer)

    @property
    def rows(self) -> list[tuple[Row, ToldRow]]:
        """Return the rows of the figure, each with its words."""
        return [*zip(self.answer.rows, self.told.rows, strict=True)]

    @property
    def scale(self) -> Scale:
        """Return where the figure's values stand."""
        return Scale.fit(self.answer.rows)


def answers(first: First, nouns: Nouns) -> list[Shown]:
    """Return the answers of the first screen with their words."""
    return [Shown(answer, wording.told(answer, nouns)) for answer in first.answers]


def drawn(row: Row) -> bool:
    """Return whether a row's interval is drawn: it exists, and has information."""
    return row.low is not None and row.high is not None and row.high <= NOISY * row.low


@dataclass(frozen=True)
class Scale:
    """The scale of a figure: where values stand, in percent of its width."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def fit(cls, rows: Sequence[Row]) -> Scale:
        """Return the scale that reaches over all dots, and over intervals up to half below and
        above them.
        """
        values = [value for row in rows for value in (*(dot.value for dot in row.dots), row.middle)]
        if not values:
            return cls(0.0, 1.0)
        least, most = min(values), max(values)
        bounds = [end for row in rows if drawn(row) for end in (row.low, row.high) if end]
        low, high = max(min([least, *bounds]), least / 1.5), min(max([most, *bounds]), most * 1.5)
        if not high > low:
            low, high = low * 0.9, high * 1.1
        return cls(low, high, high > LOG * low > 0)

    @property
    def ticks(self) -> list[tuple[str, str]]:
        """Return where round numbers stand, and what they are: two to five of 1, 2 and 5 times
        powers of ten.
        """
        step = 1.0
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            found = [
                value
                for k in decades
                for n in (1, 2, 5)
                if self.low <= (value := float(f"{n}e{k}")) <= self.high
            ]
            found = (
                [value for value in found if f"{value:e}"[0] == "1"] if len(found) > 5 else found
            )
        else:
            power = 10.0 ** math.floor(math.log10((self.high - self.low) / 2))
            step = power * max(
                (n for n in (1, 2, 5) if n * power * 2 <= self.high - self.low), default=1
            )
            least, most = (
                self.low / step - 1e-9,
                self.high / step + 1e-9,
            )  # an end that is round has a tick
            found = [n * step for n in range(math.ceil(least), math.floor(most) + 1)]
        texts = [digits(value) for value in found]
        if len({*texts}) < len(texts):  # values that differ in a later digit
            places = max(0, math.ceil(-math.log10(step) - 1e-9))
            texts = [f"{value:.{places}f}" for value in found]
        return [(self.at(value), text) for value, text in zip(found, texts, strict=True)]

    def at(self, value: float) -> str:
        """Return `37.5%`, with a little room at both ends."""
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return f"{3 + 94 * (value - low) / ((high - low) or 1):.1f}%"
