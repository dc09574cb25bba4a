"""How the default model learns from published series, and how good predictions are on series that it has not seen.

`fit` finds the priors under which series are most likely. One source is left out at a time, and each of its series is
predicted from each of its beginnings, at each later point. `calibrate` says how far intervals of `regression` reach.
`prediction.py` calls this, and prints what docs/measurements/prediction.md shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from ddlbench.analysis.prediction import Measured, TooLittleError, regression
from ddlbench.analysis.prediction._priors import FITTED, Priors, Published
from ddlbench.core import files
from numpy.typing import NDArray
from rivals import MODELS, Model
from scipy import optimize, special

Floats = NDArray[np.float64]
DEFAULT = "regression"

# Where the search begins, and the weak pull that keeps variances finite when few series are left: ln of the slopes'
# standard deviations, of the walk and of the noise, each normal with a standard deviation of 2.
_SLOPE = (0.02, 0.1, 0.03)
_LOG = (-3.5, -2.5, -3.5, -1.0, -7.0, -9.0)
_FREEDOM = 3.0
# The batch's slope is 1 by the meaning of h: the fixed time of a step, no more and no less.
_BATCH_SLOPE = 1.0


def fit(series: Sequence[Published], begin: Priors | None = None) -> Priors:
    """The priors under which these series are most likely (maximum of the marginal likelihood, `a` and scale left out).

    `begin` is where the search starts: it is quick from the priors of nearly the same series.
    """
    contrasts = _Contrasts.of(series)

    def unlikely(theta: Floats) -> float:
        priors = _unpack(theta)
        rows = contrasts.drift
        variance = np.einsum("nip,p,njp->nij", rows, np.array(priors.slope_sd) ** 2, rows)
        variance += priors.walk * contrasts.walk + priors.noise * contrasts.noise + contrasts.pad
        root = np.linalg.cholesky(variance)
        white = np.linalg.solve(root, (contrasts.rates - rows @ np.array(priors.slope))[..., None])[..., 0]
        n, nu = contrasts.points, priors.freedom
        likely = special.gammaln((nu + n) / 2) - special.gammaln(nu / 2) - n / 2 * np.log(nu * np.pi)
        likely -= np.log(np.diagonal(root, axis1=1, axis2=2)).sum(1) + (nu + n) / 2 * np.log1p((white**2).sum(1) / nu)
        return float(-likely.sum() + 0.5 * np.sum((theta[3:9] - np.array(_LOG)) ** 2 / 4))

    start = np.array([*_SLOPE, *_LOG, np.log(_FREEDOM)]) if begin is None else _pack(begin)
    return _unpack(optimize.minimize(unlikely, start, method="L-BFGS-B", options={"ftol": 1e-7}).x)


def _pack(priors: Priors) -> Floats:
    logs = np.log([*priors.slope_sd, priors.walk, priors.noise, priors.freedom])
    return np.array([*priors.slope[:3], *logs])


def _unpack(theta: Floats) -> Priors:
    sd = [float(value) for value in np.exp(theta[3:9])]
    return Priors(
        (*(float(value) for value in theta[:3]), _BATCH_SLOPE), tuple(sd[:4]), sd[4], sd[5], float(np.exp(theta[9]))
    )


@dataclass(frozen=True)
class _Contrasts:
    """All series as differences from their first point, padded to one length, so that `fit` is one array operation."""

    drift: Floats  # (series, points, 4)
    rates: Floats
    walk: Floats
    noise: Floats
    pad: Floats
    points: Floats

    @classmethod
    def of(cls, series: Sequence[Published]) -> _Contrasts:
        most = max(len(one.measured.workers) for one in series) - 1
        shape = (len(series), most, most)
        made = cls(
            np.zeros((len(series), most, 4)),
            np.zeros(shape[:2]),
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(shape),
            np.array([len(one.measured.workers) - 1 for one in series], float),
        )
        for i, one in enumerate(series):
            points = one.measured
            workers, batch = np.array(points.workers, float), np.array(points.batch_per_worker)
            rates = np.log(np.array(points.images_per_s) / workers)
            n = len(workers) - 1
            difference = np.eye(n + 1)[1:] - np.eye(n + 1)[0]
            rows = regression.drift(workers, batch, points.workers_per_node, float(np.exp(rates[0])), batch[0])
            made.drift[i, :n], made.rates[i, :n] = difference @ rows, difference @ rates
            doublings = np.log2(workers)
            made.walk[i, :n, :n] = difference @ np.minimum.outer(doublings, doublings) @ difference.T
            made.noise[i, :n, :n] = difference @ difference.T
            made.pad[i, range(n, most), range(n, most)] = 1.0
        return made


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
    def width(self) -> float | None:
        """The interval's upper end by its lower one; None without one."""
        return None if self.low is None or self.high is None else self.high / self.low

    @property
    def winkler(self) -> float | None:
        """Winkler's score of the interval of ln rate: its width, and 40 times by how much it misses; less is better."""
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
        if self.workers <= self.node:
            return "within a node"
        return "from beyond a node" if self.known > self.node else "from one node to more"


def left_out(series: Sequence[Published]) -> Iterator[tuple[list[Published], Priors]]:
    """(the series of a source, the priors fitted to all other sources), source by source."""
    every = fit(series)
    for source in sorted({one.source for one in series}):
        others = [one for one in series if one.source != source]
        yield [one for one in series if one.source == source], fit(others, every)


def tries(series: Sequence[Published], priors: Priors, models: Mapping[str, Model] = MODELS) -> Iterator[Try]:
    """Every beginning of every series, at every later point, by the default and every model that has enough points."""
    for one in series:
        points = one.measured
        for known in range(1, len(points.workers)):
            for at in range(known, len(points.workers)):
                for name in (DEFAULT, *models):
                    try:
                        yield _try(one, points.first(known), at, name, models, priors)
                    except TooLittleError:
                        continue


def _try(one: Published, known: Measured, at: int, name: str, models: Mapping[str, Model], priors: Priors) -> Try:
    points = one.measured
    asked = [points.workers[at]], [points.batch_per_worker[at]]
    if name == DEFAULT:
        made = regression.predict(known, *asked, priors)
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


def calibrate(left: Sequence[tuple[list[Published], Priors]], hold: float = 0.95) -> tuple[float, float]:
    """How many standard deviations hold a share `hold` of `left_out`'s tries: within a node, and beyond it."""
    needed: dict[str, list[float]] = {}
    for some, priors in left:
        for one in tries(some, replace(priors, reach=(1.0, 1.0)), {}):
            assert one.high is not None
            off = abs(math.log(one.truth / one.predicted)) / math.log(one.high / one.predicted)
            needed.setdefault(one.group, []).append(off)
    within, beyond = (sorted(needed[group]) for group in ("within a node", "from beyond a node"))
    first, second = (of[min(len(of) - 1, math.ceil(hold * len(of)) - 1)] for of in (within, beyond))
    return first, second


def fit_calibrated(series: Sequence[Published]) -> Priors:
    """The priors of all series, with intervals that hold on sources left out. A minute for 62 series on one core."""
    return replace(fit(series), reach=calibrate(list(left_out(series))))


def write(priors: Priors, series: int, path: Path = FITTED) -> None:
    """Writes the file that `_priors.read` reads."""
    said = "fitted by python bench/prediction.py --fit from throughput-series.csv; see docs/prediction.md"
    files.write_json(path, {"what": said, "series": series, "priors": asdict(priors)})
