"""Series of a study's runs, which predictions start from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ddlbench.analysis import scaling, together
from ddlbench.analysis.prediction import Measured
from ddlbench.analysis.price import Draw


@dataclass(frozen=True)
class Scaling:
    """A series of training alike in all but the number of workers: `points` are rows of `scaling`,
    with the loader's name beside the others in `named`; `runs` are the usable timed runs that they
    are of.
    """

    points: pd.DataFrame
    runs: pd.DataFrame

    @property
    def first(self) -> pd.Series[Any]:
        """Return the point of the smallest worker count."""
        return self.points.iloc[0]

    @property
    def batches(self) -> tuple[float, ...] | None:
        """Return the images per step of one worker at each point; None where others' records do not
        say it.
        """
        batches = self.runs.groupby("workers")["each"].median()
        return (
            None
            if batches.isna().any()
            else tuple(float(batches[count]) for count in self.points["workers"])
        )

    @property
    def global_batch(self) -> int | None:
        """Return the global batch [images] under strong scaling, which more workers share; else
        None.
        """
        return None if pd.isna(self.first["global_batch"]) else int(self.first["global_batch"])

    @property
    def ours(self) -> bool:
        """Tell whether the runs are ours, and not of records that others made."""
        return bool(together.are_ours(self.runs).all())

    def node(self, workers_per_node: int | None) -> int:
        """Return the workers of a node: the machine's, or for records of others the most that they
        name.
        """
        return (
            workers_per_node
            if self.ours and workers_per_node
            else int(self.runs["workers_per_node"].max())
        )

    @property
    def images(self) -> float:
        """Return the images of an epoch; for programs, whose runs end when they like, those of the
        longest run.
        """
        images = _images(self.runs)
        return float(images.max() if self.of_programs else images.median())

    @property
    def of_programs(self) -> bool:
        """Tell whether the runs are of a user's own program."""
        return bool(together.of_programs(self.runs).all())

    @property
    def draws(self) -> tuple[Draw, ...]:
        """Return the power of each run while it trained, of those that measured it; at lower
        efficiency it would be less.
        """
        if "energy_j" not in self.runs:
            return ()
        draws = []
        for run in self.runs[self.runs["energy_j"].notna()].to_dict("records"):
            devices_j = run.get("device_energy_j")
            devices_w = (
                None
                if devices_j is None or pd.isna(devices_j)
                else float(devices_j) / run["train_s"]
            )
            watts = float(run["energy_j"]) / run["train_s"]
            draws.append(Draw(int(run["workers"]), int(run["nodes"]), watts, devices_w))
        return tuple(draws)

    def measured(self, workers_per_node: int, batches: tuple[float, ...]) -> Measured:
        """Return the points as predictions want them, with `batches` per worker."""
        return Measured(
            tuple(int(count) for count in self.points["workers"]),
            tuple(float(rate) for rate in self.points["throughput_images_per_s"]),
            batches,
            workers_per_node,
        )


def _images(runs: pd.DataFrame) -> pd.Series[float]:
    return runs["epoch_s"] * runs["throughput_images_per_s"]


def lines(runs: pd.DataFrame) -> Iterator[Scaling]:
    """Yield all series in `runs`, the table of `collect`."""
    table = scaling.scaling(runs)
    runs = runs.assign(each=runs["global_batch"] / runs["workers"])
    table, placed = table.assign(named=scaling.loader_names), scaling.counted_runs(runs)
    for _, points in table.groupby(list(together.SERIES), dropna=False, sort=False):
        yield Scaling(points, together.rows_like(placed, points.iloc[0], together.SERIES))
