"""Series of a study's runs over worker counts, which predictions start from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ddlbench.analysis import prediction_series, together
from ddlbench.analysis.comparisons import DISTINGUISHING, setting_titles, varying_settings
from ddlbench.analysis.prediction import Measured
from ddlbench.analysis.price import Draw
from ddlbench.core.roles import AXIS, SETTING

# What all points of a series share.
NAMED = (*together.with_roles(AXIS, SETTING, without=["of_epochs"]), "precision")


@dataclass(frozen=True)
class Series:
    """Points of training alike in all but the number of workers. `settings` are NAMED and
    DISTINGUISHING, None where unknown.

    `points` are rows of `analysis/scaling.py`; `images` of an epoch, `epochs` of the whole
    training. `distinguished_by` are the settings that its name says, because series differ in
    them; `global_batch` and `draws` as in `prediction_series.Scaling`.
    """

    settings: dict[str, Any]
    measured: Measured
    points: tuple[dict[str, Any], ...]
    images: float
    epochs: float
    distinguished_by: tuple[str, ...] = ()
    global_batch: int | None = None
    draws: tuple[Draw, ...] = ()
    runs: tuple[str, ...] = ()

    @property
    def batches(self) -> dict[int, float]:
        """Return the images per step of one worker, by measured worker count."""
        return dict(zip(self.measured.workers, self.measured.batch_per_worker, strict=True))

    def batch_at(self, workers: int) -> float:
        """Return the images per step of one worker: what was measured with so many workers, else
        with the most workers; under strong scaling, its share of the global batch.
        """
        fallback = (
            self.global_batch / workers if self.global_batch else self.measured.batch_per_worker[-1]
        )
        return self.batches.get(workers, fallback)

    def at(self, workers: int) -> dict[str, Any]:
        """Return the point that was measured with so many workers; empty if none was."""
        return next((point for point in self.points if int(point["workers"]) == workers), {})

    @property
    def name(self) -> str:
        """Return the series' name in a few words."""
        keys = ("model", "framework", "loader", "precision")
        words = [
            *dict.fromkeys(self.settings[key] for key in keys if self.settings[key]),
            *self.distinguished_by,
        ]
        if not self.settings["loader"]:  # for others' records, the machine distinguishes the series
            words.append(str(self.settings["machine"]))
        batches = sorted(set(self.measured.batch_per_worker))
        span = " to ".join(f"{batch:g}" for batch in dict.fromkeys((batches[0], batches[-1])))
        if self.global_batch:
            return f"{', '.join(map(str, words))}, batch {self.global_batch} of all workers"
        return f"{', '.join(map(str, words))}, batch {span} per worker"


def all_series(runs: pd.DataFrame, workers_per_node: int | None) -> list[Series]:
    """Return all series in `runs`, the table of `collect`, whose batches are known.

    `workers_per_node` is the machine's; records of others have their own.
    """
    lines = list(prediction_series.lines(runs)) if len(runs) else []
    varying = (
        [
            name
            for name in varying_settings(pd.concat([line.points for line in lines]))
            if name != "model"
        ]
        if lines
        else []
    )
    return [
        _of_line(line, batches, varying, workers_per_node)
        for line in lines
        if (batches := line.batches)
    ]


def _of_line(
    line: prediction_series.Scaling,
    batches: tuple[float, ...],
    varying: Sequence[str],
    workers_per_node: int | None,
) -> Series:
    epochs, seen = _median(line.runs, "of_epochs"), _median(line.runs, "images_seen")
    return Series(
        settings={key: _known(line.runs, key) for key in (*NAMED, *DISTINGUISHING)}
        | {"loader": _known(line.points, "named")},
        measured=line.measured(line.node(workers_per_node), batches),
        points=tuple(
            {str(key): value for key, value in row.items()}
            for row in line.points.to_dict("records")
        ),
        images=line.images,
        epochs=epochs or (seen or line.images) / line.images,
        distinguished_by=tuple(setting_titles(line.first.to_dict(), varying)) if line.ours else (),
        global_batch=line.global_batch,
        draws=line.draws,
        runs=tuple(sorted(line.runs["run"])),
    )


def _known(rows: pd.DataFrame, key: str) -> Any:
    """Return what all of the rows have in a column, None where that is null or the column is
    missing.
    """
    return None if key not in rows or pd.isna(rows[key].iloc[0]) else rows[key].iloc[0]


def _median(runs: pd.DataFrame, column: str) -> float | None:
    value = (
        pd.to_numeric(runs[column], errors="coerce").median() if column in runs else float("nan")
    )
    return None if pd.isna(value) else float(value)
