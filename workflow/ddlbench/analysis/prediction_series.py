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
    """Training alike in all but the number of workers: `points` are rows of `scaling`, with the loader's name beside
    the others in `named`; `runs` are the usable timed runs that they are of."""

    points: pd.DataFrame
    runs: pd.DataFrame

    @property
    def first(self) -> pd.Series[Any]:
        """The point of the smallest worker count."""
        return self.points.iloc[0]

    @property
    def batches(self) -> tuple[float, ...] | None:
        """Images per step of one worker at each point; None where others' records do not say it."""
        batches = self.runs.groupby("workers")["each"].median()
        return None if batches.isna().any() else tuple(float(batches[count]) for count in self.points["workers"])

    @property
    def whole(self) -> int | None:
        """Images per step of all workers, under strong scaling, where more workers share them."""
        return None if pd.isna(self.first["global_batch"]) else int(self.first["global_batch"])

    @property
    def ours(self) -> bool:
        """Whether the runs are ours, and not of records that others made."""
        return bool(together.are_ours(self.runs).all())

    def node(self, machines: int | None) -> int:
        """Workers of a node: the machine's, or what others' records say of theirs."""
        return machines if self.ours and machines else int(self.runs["workers_per_node"].max())

    @property
    def images(self) -> float:
        """Images of an epoch; of a program, whose runs end when they like, those of the longest run."""
        images = _images(self.runs)
        return float(images.max() if self.of_programs else images.median())

    @property
    def of_programs(self) -> bool:
        """Whether the runs are of a user's own program."""
        return bool(together.of_programs(self.runs).all())

    @property
    def draws(self) -> tuple[Draw, ...]:
        """What each run drew while it trained, of those that measured it; at lower efficiency it would be less."""
        if "energy_j" not in self.runs:
            return ()
        draws = []
        for run in self.runs[self.runs["energy_j"].notna()].to_dict("records"):
            devices_j = run.get("device_energy_j")
            devices_w = None if devices_j is None or pd.isna(devices_j) else float(devices_j) / run["train_s"]
            watts = float(run["energy_j"]) / run["train_s"]
            draws.append(Draw(int(run["workers"]), int(run["nodes"]), watts, devices_w))
        return tuple(draws)

    def measured(self, workers_per_node: int, batches: tuple[float, ...]) -> Measured:
        """The points as predictions want them, with `batches` per worker."""
        return Measured(
            tuple(int(count) for count in self.points["workers"]),
            tuple(float(rate) for rate in self.points["throughput_images_per_s"]),
            batches,
            workers_per_node,
        )


def _images(runs: pd.DataFrame) -> pd.Series[float]:
    return runs["epoch_s"] * runs["throughput_images_per_s"]


def lines(runs: pd.DataFrame) -> Iterator[Scaling]:
    """All series in `runs`, the table of `collect`."""
    table = scaling.scaling(runs)
    runs = runs.assign(each=runs["global_batch"] / runs["workers"])
    table, placed = table.assign(named=scaling.names), scaling.placed(runs)
    for _, points in table.groupby(list(together.SERIES), dropna=False, sort=False):
        yield Scaling(points, together.alike(placed, points.iloc[0], together.SERIES))
