"""What `regression` has learnt from published series: fitted from a CSV, kept in a file, never typed in.

`python bench/prediction.py --fit` writes `config/references/prediction-priors.json` from
`config/references/throughput-series.csv`; `bench/learning.py` is how.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ddlbench.analysis.prediction import Measured

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
    """Reads the file that was fitted."""
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
