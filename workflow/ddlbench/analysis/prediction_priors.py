"""What `last_rate` has learnt from published series: fitted from a CSV, kept in a file, never typed
in.

`python bench/prediction.py --fit` writes `config/references/prediction-priors.json` from
`config/references/throughput-series.csv`; `bench/learning.py` is how.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.analysis.prediction import Measured

REFERENCES = Path(__file__).resolve().parents[3] / "config" / "references"
SERIES = REFERENCES / "throughput-series.csv"
FITTED = REFERENCES / "prediction-priors.json"


@dataclass(frozen=True)
class Priors:
    """The fitted priors: slopes s1 to s3; how far a point is off the line, per root of doublings
    from the point before; and the reach of 95 % intervals in standard deviations, within a node and
    beyond it.
    """

    slope: tuple[float, ...]
    unsteady: float
    reach: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class SourceSeries:
    """A published series."""

    source: str
    name: str
    measured: Measured


def read() -> Priors:
    """Read the fitted file."""
    values: dict[str, Any] = json.loads(FITTED.read_text(encoding="utf-8"))["priors"]
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return Priors(**values | lists)


def published(
    path: Path = SERIES, unknown_batch: float = 128.0, reduction: str = "all-reduce"
) -> list[SourceSeries]:
    """Read all series of this reduction with at least two points.

    Where no batch is given, `unknown_batch` is used: a batch that stays the same changes nothing.
    All frameworks here reduce by all-reduce; parameter servers collapse, and would make intervals
    useless.
    """
    import pandas as pd

    table = pd.read_csv(path, comment="#").sort_values("workers", kind="stable")
    table = table[table["reduction"] == reduction]
    series = []
    for (source, name), rows in table.groupby(["source", "series"], sort=True):
        points = Measured(
            tuple(int(value) for value in rows["workers"]),
            tuple(float(value) for value in rows["images_per_s"]),
            tuple(float(value) for value in rows["batch_per_worker"].fillna(unknown_batch)),
            int(rows["workers_per_node"].iloc[0]),
        )
        if len(points.workers) > 1:
            series.append(SourceSeries(str(source), str(name), points))
    return series
