"""Series of a study's runs, which predictions, candidates and what if start from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ddlbench.analysis import scaling, together
from ddlbench.analysis.prediction import Measured


@dataclass(frozen=True)
class Line:
    """Training alike in all but the number of workers: `points` are rows of `scaling`, with the loader's name beside
    the others in `named`; `runs` are the usable timed runs that they are of."""

    points: pd.DataFrame
    runs: pd.DataFrame

    @property
    def first(self) -> pd.Series[Any]:
        """The point of the smallest worker count."""
        return self.points.iloc[0]

    @property
    def weak(self) -> bool:
        """Whether each point has the same batch per worker."""
        return bool(pd.notna(self.first["batch_per_worker"]))

    @property
    def images(self) -> float:
        """Images of an epoch."""
        return float((self.runs["epoch_s"] * self.runs["throughput_images_per_s"]).median())

    @property
    def power_w(self) -> float | None:
        """Of one worker and its share of the node, as measured; at lower efficiency it would be less."""
        if "energy_j" not in self.runs:
            return None
        power = (self.runs["energy_j"] / self.runs["train_s"] / self.runs["workers"]).median()
        return None if pd.isna(power) else float(power)

    def at(self, workers: int) -> pd.DataFrame:
        """The runs of one worker count."""
        return self.runs[self.runs["workers"] == workers]

    def measured(self, workers_per_node: int, batches: tuple[float, ...] = ()) -> Measured:
        """The points as predictions want them; `batches` per worker, if the series is not one of weak scaling."""
        return Measured(
            tuple(int(count) for count in self.points["workers"]),
            tuple(float(rate) for rate in self.points["throughput_images_per_s"]),
            batches or (float(self.first["batch_per_worker"]),) * len(self.points),
            workers_per_node,
        )


def lines(runs: pd.DataFrame, weak: bool = False) -> Iterator[Line]:
    """All series in `runs`, the table of `collect`, or those of weak scaling."""
    table = scaling.scaling(runs)
    if weak:
        table = table[table["batch_per_worker"].notna()]
    table, placed = table.assign(named=scaling.names), scaling.placed(runs)
    for _, points in table.groupby(list(together.SERIES), dropna=False, sort=False):
        yield Line(points, together.alike(placed, points.iloc[0], together.SERIES))
