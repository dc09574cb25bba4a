"""How good predictions are on series that the priors have not seen: one source left out at a time.

Each series is predicted from each of its beginnings, at each later point. `calibrate` widens the intervals of
`regression` until they hold; `table` is what docs/measurements/prediction.md shows. bench/prediction.py prints it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ddlbench.analysis.prediction import Measured, TooLittleError, _priors
from ddlbench.analysis.prediction._priors import Priors, Published
from ddlbench.core import registry


@dataclass(frozen=True)
class Try:
    """One prediction and what was measured [images/s]; `low` and `high` are None where a model gives no interval."""

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
        return None if self.low is None or self.high is None else self.low <= self.truth <= self.high

    @property
    def doublings(self) -> float:
        """Beyond the largest measured count."""
        return math.log2(self.workers / self.known)

    @property
    def group(self) -> str:
        """Where it was predicted from and to."""
        if self.workers <= self.node:
            return "within a node"
        return "from beyond a node" if self.known > self.node else "from one node to more"


def left_out(series: Sequence[Published]) -> Iterator[tuple[list[Published], Priors]]:
    """(the series of a source, the priors fitted to all other sources), source by source."""
    every = _priors.fit(series)
    for source in sorted({one.source for one in series}):
        others = [one for one in series if one.source != source]
        yield [one for one in series if one.source == source], _priors.fit(others, every)


def tries(series: Sequence[Published], priors: Priors, models: Sequence[str]) -> Iterator[Try]:
    """Every beginning of every series, at every later point, by every model that has enough points."""
    for one in series:
        points = one.measured
        for known in range(1, len(points.workers)):
            for at in range(known, len(points.workers)):
                for model in models:
                    made = _try(one, points.first(known), at, model, priors)
                    if made:
                        yield made


def _try(one: Published, known: Measured, at: int, model: str, priors: Priors) -> Try | None:
    points = one.measured
    workers, batch = points.workers[at], points.batch_per_worker[at]
    try:
        made = registry.member("prediction", model).predict(known, [workers], [batch], priors)
    except TooLittleError:
        return None
    low = None if made.low is None else float(made.low[0])
    high = None if made.high is None else float(made.high[0])
    return Try(
        one.source,
        one.name,
        model,
        known.workers[-1],
        workers,
        len(known.workers),
        known.workers_per_node,
        points.images_per_s[at],
        float(made.images_per_s[0]),
        low,
        high,
    )


def calibrate(left: Sequence[tuple[list[Published], Priors]], hold: float = 0.98) -> tuple[float, float]:
    """(widen_low, widen_high) per doubling: the least with which intervals hold a share `hold` of `left_out`'s tries.

    `hold` is above 95 % because the next source is never quite like the known ones; bench/prediction.py shows what
    holds on a source that the calibration has not seen.

    Upwards at most half of the misses are allowed; downwards the rest. The sides differ: see `regression`.
    """
    low, high = [], []
    for some, priors in left:
        for one in tries(some, priors, ["regression"]):
            middle, truth = math.log(one.predicted), math.log(one.truth)
            assert one.low is not None and one.high is not None
            half = middle - math.log(one.low) if truth < middle else math.log(one.high) - middle
            needed = (abs(truth - middle) / half - 1) / one.doublings
            low.append(needed if truth < middle else 0.0)
            high.append(needed if truth >= middle else 0.0)
    widen_high = _quantile(high, 1 - (1 - hold) / 2)
    missed = sum(value > widen_high for value in high) / len(high)
    return _quantile(low, hold + missed), widen_high


def _quantile(values: Sequence[float], share: float) -> float:
    """The smallest of the values, 0 or more, that at least `share` of them do not exceed."""
    ordered = sorted(values)
    return max(0.0, ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)])


def fit_calibrated(series: Sequence[Published]) -> Priors:
    """The priors of all series, with intervals that hold on sources left out. A minute for 62 series on one core."""
    low, high = calibrate(list(left_out(series)))
    return replace(_priors.fit(series), widen_low=low, widen_high=high)
