"""Which candidate is first, which cannot be told from it, and which lie on the front of time against price.

First is the one with the smallest product of time and worker hours, on which a price depends: one percent less time is
worth one percent more money. More workers are taken as long as they bring more speed than they cost.

Source: Eager, Zahorjan & Lazowska 1989, Speedup versus efficiency in parallel systems, IEEE Trans. Computers 38(3): the
knee of time against efficiency is where efficiency divided by time is largest.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ddlbench.outlook.recommendation.candidates import SAME_EPOCHS, half_widths

Row = dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """The candidates of one model on one data set, the best first; `alike` cannot be told from the first."""

    ordered: tuple[Row, ...]
    alike: tuple[Row, ...]

    @property
    def first(self) -> Row:
        return self.ordered[0]

    @property
    def second(self) -> Row | None:
        return self.ordered[1] if len(self.ordered) > 1 else None


def score(row: Row) -> float:
    """ln(hours x worker hours), of which less is better."""
    return math.log(row["hours"] * row["worker_hours"])


def choose(rows: Sequence[Row]) -> Choice:
    """Of candidates, all with hours, at least one. Of equals, measured ones with most repeats come first."""
    ordered = sorted(rows, key=lambda row: (score(row), row["speed_by"], -row["repeats"]))
    return Choice(tuple(ordered), tuple(row for row in ordered[1:] if not apart(ordered[0], row)))


def apart(first: Row, other: Row) -> bool:
    """Whether the intervals tell that `first` is the better of two: never where one of them has none.

    The product of time and worker hours moves with the square of a time. With the same epochs at the same batch only
    the rates are compared.
    """
    same = all(first[key] == other[key] for key in SAME_EPOCHS)
    ours, theirs = half_widths(first, not same), half_widths(other, not same)
    if ours is None or theirs is None:
        return False
    return (score(other) - score(first)) / 2 > math.hypot(ours[1], theirs[0])


def faster_by(first: Row, second: Row) -> float:
    """The share of its time that `second` would have to lose to be first."""
    return 1 - math.exp((score(first) - score(second)) / 2)


def mark_front(rows: Sequence[Row]) -> None:
    """Sets `front` of each row: no other of its subject takes less time for fewer worker hours."""
    for row in rows:
        rivals = [
            other
            for other in rows
            if other is not row and other["hours"] is not None and subject(other) == subject(row)
        ]
        row["front"] = row["hours"] is not None and not any(_dominates(other, row) for other in rivals)


def subject(row: Row) -> tuple[str | None, ...]:
    """What only candidates for the same purpose share."""
    return row["dataset"], row["model"], row["accelerator"]


def _dominates(a: Row, b: Row) -> bool:
    no_worse = a["hours"] <= b["hours"] and a["worker_hours"] <= b["worker_hours"]
    return bool(no_worse and (a["hours"] < b["hours"] or a["worker_hours"] < b["worker_hours"]))
