"""What `regression` has learnt from published series: fitted from a CSV, kept in a file, never typed in.

`python -m ddlbench.analysis.prediction --fit` writes `config/references/prediction-priors.json` from
`config/references/throughput-series.csv`. `bench/prediction.py` fits them anew without the source that it predicts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddlbench.analysis.prediction import Measured, regression

if TYPE_CHECKING:
    from ddlbench.analysis.prediction import Floats

REFERENCES = Path(__file__).resolve().parents[4] / "config" / "references"
SERIES = REFERENCES / "throughput-series.csv"
FITTED = REFERENCES / "prediction-priors.json"


@dataclass(frozen=True)
class Priors:
    """Slopes s1..s4 (mean and standard deviation), variance per doubling of the walk, of the noise, and of Student's t
    the degrees of freedom; and by how much intervals are widened per doubling (see `regression`)."""

    slope: tuple[float, ...]
    slope_sd: tuple[float, ...]
    walk: float
    noise: float
    freedom: float
    widen_low: float = 0.0
    widen_high: float = 0.0


@dataclass(frozen=True)
class Published:
    """A published series."""

    source: str
    name: str
    measured: Measured


def read() -> Priors:
    """Of the file that `fit` made."""
    values = json.loads(FITTED.read_text(encoding="utf-8"))["priors"]
    return Priors(**{**values, "slope": tuple(values["slope"]), "slope_sd": tuple(values["slope_sd"])})


def published(path: Path = SERIES, unknown_batch: float = 128.0) -> list[Published]:
    """All series with at least two points. Where no batch is given, one that stays the same changes nothing."""
    import pandas as pd

    table = pd.read_csv(path, comment="#").sort_values("workers", kind="stable")
    series = []
    for (source, name), rows in table.groupby(["source", "series"], sort=True):
        points = Measured(
            tuple(int(value) for value in rows["workers"]),
            tuple(float(value) for value in rows["images_per_s"]),
            tuple(float(value) for value in rows["batch_per_worker"].fillna(unknown_batch)),
            int(rows["workers_per_node"].iloc[0]),
        )
        if len(points.workers) > 1:
            series.append(Published(str(source), str(name), points))
    return series


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
    import numpy as np
    from scipy import optimize, special

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
    import numpy as np

    logs = np.log([*priors.slope_sd, priors.walk, priors.noise, priors.freedom])
    return np.array([*priors.slope[:3], *logs])


def _unpack(theta: Floats) -> Priors:
    import numpy as np

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
        import numpy as np

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


def write(priors: Priors, series: int, path: Path = FITTED) -> None:
    """The file that `read` reads."""
    from ddlbench.core import files

    said = "fitted by python -m ddlbench.analysis.prediction --fit from throughput-series.csv; see docs/prediction.md"
    files.write_json(path, {"what": said, "series": series, "priors": asdict(priors)})
