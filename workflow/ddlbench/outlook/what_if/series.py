"""Series of records to compute from: ours along one batch per worker, those of others with the batch that they had."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ddlbench.analysis import scaling, together
from ddlbench.analysis.comparisons import settings, telling
from ddlbench.analysis.prediction import Measured

NAMED = ("machine", "dataset", "model", "framework", "loader", "recipe", "precision")


@dataclass(frozen=True)
class Series:
    """Points of training alike in all but the number of workers. `of` has the values of NAMED, None where unknown.

    `points` are rows of `analysis/scaling.py`; `images` of an epoch, `epochs` of the whole training; `gradients_bytes`
    and `backward_share` (of the computing of a step) are of its runs, None where no record says it. `apart` are the
    settings that its name says, because the series beside it differ in them.
    """

    of: dict[str, Any]
    measured: Measured
    points: tuple[dict[str, Any], ...]
    images: float
    epochs: int
    gradients_bytes: float | None
    backward_share: float | None
    apart: tuple[str, ...] = ()

    @property
    def batch(self) -> float:
        """Images per step of one worker at the largest measured count, which larger counts are computed for."""
        return self.measured.batch_per_worker[-1]

    @property
    def name(self) -> str:
        """In a few words."""
        known = [self.of[key] for key in ("model", "framework", "loader", "precision") if self.of[key]]
        words = [*known, *self.apart]
        if not self.of["loader"]:  # of others' records the machine tells series apart
            words.append(str(self.of["machine"]))
        batches = sorted(set(self.measured.batch_per_worker))
        span = " to ".join(f"{batch:g}" for batch in dict.fromkeys((batches[0], batches[-1])))
        return f"{', '.join(map(str, words))}, batch {span} per worker"


def series(runs: pd.DataFrame, workers_per_node: int | None) -> list[Series]:
    """All series of weak scaling in `runs`, the table of `collect`; of others' records all, each with its batches.

    `workers_per_node` is the machine's; others' records say theirs. Of many, first those with the largest count.
    """
    table = scaling.scaling(runs).assign(named=scaling.names)
    if table.empty:
        return []
    placed = scaling.placed(runs.assign(batch=runs["global_batch"] / runs["workers"]))
    made = list(_each(table, placed, workers_per_node))
    return sorted(made, key=lambda one: (-one.measured.workers[-1], -len(one.measured.workers), one.name))


def _each(table: pd.DataFrame, placed: pd.DataFrame, workers_per_node: int | None) -> Iterator[Series]:
    differ = [name for name in telling(table) if name != "model"]
    for _, points in table.groupby(list(together.SERIES), dropna=False, sort=False):
        first = points.iloc[0]
        if pd.notna(first["global_batch"]):  # strong scaling: the batch of a worker shrinks
            continue
        alike = together.alike(placed, first, together.SERIES)
        batches = alike.groupby("workers")["batch"].median()
        if batches.isna().any():
            continue  # a record of others without its batch
        counts = tuple(int(count) for count in points["workers"])
        own = "records" not in alike or alike["records"].fillna("ours").eq("ours").all()
        node = workers_per_node if own and workers_per_node else int(alike["workers_per_node"].max())
        rates = tuple(float(rate) for rate in points["throughput_images_per_s"])
        computing = _median(alike, "compute_s")
        backward = _median(alike, "backward_s")
        yield Series(
            of={key: _known(alike, key) for key in NAMED} | {"loader": _known(points, "named")},
            measured=Measured(counts, rates, tuple(float(batches[count]) for count in counts), node),
            points=tuple({str(key): value for key, value in row.items()} for row in points.to_dict("records")),
            images=float((alike["epoch_s"] * alike["throughput_images_per_s"]).median()),
            epochs=int(_median(alike, "of_epochs") or 1),
            gradients_bytes=_median(alike, "gradients_bytes"),
            backward_share=backward / computing if backward and computing else None,
            apart=tuple(settings(first.to_dict(), differ)) if own else (),
        )


def _known(rows: pd.DataFrame, key: str) -> Any:
    """What all of the rows have in a column, None where that is null or the column is missing."""
    return None if key not in rows or pd.isna(rows[key].iloc[0]) else rows[key].iloc[0]


def _median(runs: pd.DataFrame, column: str) -> float | None:
    value = pd.to_numeric(runs[column], errors="coerce").median() if column in runs else float("nan")
    return None if pd.isna(value) else float(value)
