"""How the default model learns from published series, and how good predictions are on series that
it has not seen.

`fit` finds what series lose. One source is left out at a time, and each of its series is predicted
from each of its beginnings, at each later point. `calibrate` says how far intervals reach.
`prediction.py` calls this, and prints what docs/measurements/prediction.md shows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path

from ddlbench.analysis.prediction import Measured, TooLittleError, last_rate
from ddlbench.analysis.prediction_priors import FITTED, Priors, SourceSeries
from ddlbench.core import files
from rivals import MODELS, Model

DEFAULT = "last rate"
WITHIN, BEYOND, FROM_ONE = "within a node", "from beyond a node", "from one node to more"

NORMAL = (
    0.6745  # the median distance from the middle of a normal distribution, in standard deviations
)


def fit(series: Sequence[SourceSeries]) -> Priors:
    """The slopes with the least absolute errors over all pairs of points within a node, beyond one,
    and from one to more. Each source counts once, because series of one source are alike.
    """
    slope = [0.0] * 3
    for place, name in ((0, WITHIN), (2, BEYOND), (1, FROM_ONE)):
        found = []
        for one in series:
            workers, (left, _) = one.measured.workers, last_rate.steps(one.measured, slope)
            for few, many in combinations(range(len(workers)), 2):
                if group(workers[few], workers[many], one.measured.workers_per_node) == name:
                    far = 1.0 if place == 1 else math.log2(workers[many] / workers[few])
                    found.append((float(left[few] - left[many]) / far, far, one.source))
        slope[place] = _middle(found)
    changes = [
        (abs(float(c)), 1.0, one.source)
        for one in series
        for c in last_rate.steps(one.measured, slope)[1]
    ]
    return Priors(tuple(slope), _middle(changes) / NORMAL)


def _middle(found: Sequence[tuple[float, float, str]]) -> float:
    """The weighted median of (value, weight, source), with the same weight for each source."""
    sources = Counter(source for _, _, source in found)
    ordered = sorted((value, weight / sources[source]) for value, weight, source in found)
    half, total = sum(weight for _, weight in ordered) / 2, 0.0
    for value, weight in ordered:
        total += weight
        if total >= half:
            return value
    raise ValueError("no series has such points")


def group(few: int, many: int, node: int) -> str:
    """From where to where it is predicted."""
    return WITHIN if many <= node else BEYOND if few > node else FROM_ONE


@dataclass(frozen=True)
class Try:
    """One prediction and what was measured [images/s]; `low` and `high` are None where a model
    gives no interval.
    """

    source: str
    series: str
    model: str
    known: int  # the largest worker count that it was predicted from
    workers: int
    points: int  # measured points that it was predicted from
    node: int  # workers of a node
    truth: float
    predicted: float
    low: float | None
    high: float | None

    @property
    def error(self) -> float:
        """Relative error, without its sign."""
        return abs(self.predicted / self.truth - 1)

    @property
    def held(self) -> bool | None:
        """Whether the interval holds the truth; None without one."""
        return (
            None if self.low is None or self.high is None else self.low <= self.truth <= self.high
        )

    @property
    def width(self) -> float | None:
        """The interval's upper end by its lower one; None without one."""
        return None if self.low is None or self.high is None else self.high / self.low

    @property
    def winkler(self) -> float | None:
        """Winkler's score of the interval of ln rate: its width, and 40 times by how much it
        misses; less is better.
        """
        if self.low is None or self.high is None:
            return None
        missed = max(0.0, math.log(self.low / self.truth), math.log(self.truth / self.high))
        return math.log(self.high / self.low) + 2 / 0.05 * missed

    @property
    def doublings(self) -> float:
        """Beyond the largest measured count."""
        return math.log2(self.workers / self.known)

    @property
    def group(self) -> str:
        """Where it was predicted from and to."""
        return group(self.known, self.workers, self.node)


def left_out(series: Sequence[SourceSeries]) -> Iterator[tuple[list[SourceSeries], Priors]]:
    """(the series of a source, the priors fitted to all other sources), source by source."""
    for source in sorted({one.source for one in series}):
        others = [one for one in series if one.source != source]
        yield [one for one in series if one.source == source], fit(others)


def tries(
    series: Sequence[SourceSeries],
    priors: Priors,
    models: Mapping[str, Model] = MODELS,
    least: int = 1,
) -> Iterator[Try]:
    """Every beginning of every series, of at least so many points, at every later point, by the
    default and every model that has enough points.
    """
    for one in series:
        points = one.measured
        for known in range(least, len(points.workers)):
            for at in range(known, len(points.workers)):
                for name in (DEFAULT, *models):
                    try:
                        yield _try(one, points.first(known), at, name, models, priors)
                    except TooLittleError:
                        continue


def _try(
    one: SourceSeries,
    known: Measured,
    at: int,
    name: str,
    models: Mapping[str, Model],
    priors: Priors,
) -> Try:
    points = one.measured
    asked = [points.workers[at]], [points.batch_per_worker[at]]
    if name == DEFAULT:
        made = last_rate.predict(known, *asked, priors)
        numbers = (float(made.images_per_s[0]), float(made.low[0]), float(made.high[0]))
    else:
        numbers = (float(models[name](known, *asked)[0]), None, None)
    return Try(
        one.source,
        one.name,
        name,
        known.workers[-1],
        points.workers[at],
        len(known.workers),
        known.workers_per_node,
        points.images_per_s[at],
        *numbers,
    )


def calibrate(
    left: Sequence[tuple[list[SourceSeries], Priors]], hold: float = 0.95
) -> tuple[float, float]:
    """How many standard deviations hold a share `hold` of `left_out`'s tries: within a node, and
    beyond it.
    """
    needed: dict[str, list[float]] = {}
    for some, priors in left:
        for one in tries(some, replace(priors, reach=(1.0, 1.0)), {}):
            assert one.high is not None
            off = abs(math.log(one.truth / one.predicted)) / math.log(one.high / one.predicted)
            needed.setdefault(one.group, []).append(off)
    within, beyond = (sorted(needed[name]) for name in (WITHIN, BEYOND))
    # One more than their number: the next case is one of them too (split conformal prediction, Vovk
    # et al. 2005).
    first, second = (
        of[min(len(of), math.ceil(hold * (len(of) + 1))) - 1] for of in (within, beyond)
    )
    return first, second


def fit_calibrated(series: Sequence[SourceSeries]) -> Priors:
    """The priors of all series, with intervals that hold on sources left out"""
    return replace(fit(series), reach=calibrate(list(left_out(series))))


def write(priors: Priors, series: int, path: Path = FITTED) -> None:
    """Writes the file that `prediction_priors.read` reads."""
    said = (
        "fitted by python bench/prediction.py --fit from throughput-series.csv; see"
        " docs/prediction.md"
    )
    files.write_json(path, {"what": said, "series": series, "priors": asdict(priors)})
