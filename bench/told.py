"""How a benchmark says a ratio to `every.py`, which prints those of all of them as one table."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

FILE = "BENCH_TOLD"  # the variable that names the file for it; without it nobody asks


@dataclass(frozen=True)
class Told:
    """A ratio of `what` to `baseline` with its interval, and the limit that it must keep; None: it
    has none.
    """

    what: str
    baseline: str
    middle: float
    low: float
    high: float
    limit: float | None
    at_most: bool = False

    @property
    def is_kept(self) -> bool:
        if self.limit is None:
            return True
        return self.middle <= self.limit if self.at_most else self.middle >= self.limit

    @property
    def interval(self) -> str:
        return f"{self.middle:.3f} ({self.low:.3f}..{self.high:.3f})"


def tell(
    what: str,
    baseline: str,
    ratios: Sequence[float],
    limit: float | None,
    at_most: bool = False,
    middle: Callable[[Sequence[float]], float] = median,
) -> None:
    """Say the median of ratios, or another `middle` of them, and the median's 95 % interval
    (`sides.bounds`).
    """
    from sides import bounds

    if FILE in os.environ:
        told = Told(what, baseline, middle(ratios), *bounds(ratios), limit, at_most)
        with Path(os.environ[FILE]).open("a") as file:
            file.write(json.dumps(asdict(told)) + "\n")
