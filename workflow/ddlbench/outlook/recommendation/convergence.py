"""How many epochs a training needs to a top-1 accuracy, by global batch: from own runs, else from MLPerf's reference.

How fast an epoch is and how many are needed are looked at apart: the first depends on framework, loader and workers,
the second on what `CURVE` names and the batch. Frameworks and loaders are held to the same training by tests and audit,
so their runs count together here; variants with options of their own do not.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd

from ddlbench.analysis.statistics import Interval, over_repeats
from ddlbench.analysis.together import finished, successful
from ddlbench.outlook import NoAnswerError

# Runs of one curve are alike in these.
CURVE = ("dataset", "model", "recipe", "options", "of_epochs", "schedule")
OWN, THEIRS, REFERENCE = "own runs", "the submitter's runs", "MLPerf's reference"
REFERENCE_OF = {"dataset": "imagenet", "model": "resnet50"}
REFERENCE_TARGET = 0.759
REFERENCE_RECIPE = "MLPerf's (LARS)"
REFERENCE_SCHEDULE = "polynomial"


@dataclass(frozen=True)
class BatchEpochs:
    """A batch: epochs to the target where every run of `runs` reached it, else None. `reached` of them did."""

    epochs: Interval | None
    reached: int
    runs: int


@dataclass(frozen=True)
class Epochs:
    """Epochs to the target at a batch, and how they are known. The reference has no interval."""

    middle: float
    low: float | None
    high: float | None
    by: str


@dataclass(frozen=True)
class Curve:
    """Epochs to the target by global batch, for what `of` names (keys of CURVE)."""

    settings: Mapping[str, Any]
    points: Mapping[int, BatchEpochs]
    source: str

    def at(self, batch: int) -> Epochs | str:
        """Epochs at a batch, or why nobody knows them.

        Between two batches the logarithm of the epochs is interpolated over that of the batch. Beyond the largest
        batch nothing is said. Below the smallest its epochs are kept: a smaller batch does not need more epochs with
        rates that fit it.
        """
        batches = sorted(self.points)
        if batch in self.points:
            return self._of(batch, self.source)
        if batch > batches[-1]:
            return f"batch {batch} is larger than the largest with known epochs, {batches[-1]} ({self.source})"
        if batch < batches[0]:
            return self._of(batches[0], f"{self.source}, those of batch {batches[0]}")
        below, above = next((a, b) for a, b in pairwise(batches) if a < batch < b)
        by = f"{self.source}, between batches {below} and {above}"
        ends = self._of(below, by), self._of(above, by)
        for end in ends:
            if isinstance(end, str):
                return f"{end}; batch {batch} lies beside it"
        left, right = (end for end in ends if not isinstance(end, str))
        share = math.log(batch / below) / math.log(above / below)

        def between(a: float | None, b: float | None) -> float | None:
            return None if a is None or b is None else a ** (1 - share) * b**share

        middle = left.middle ** (1 - share) * right.middle**share
        return Epochs(middle, between(left.low, right.low), between(left.high, right.high), by)

    def _of(self, batch: int, by: str) -> Epochs | str:
        point = self.points[batch]
        if point.epochs is None:
            return f"{point.reached} of {point.runs} trainings at batch {batch} reached the target"
        return Epochs(point.epochs.middle, point.epochs.low, point.epochs.high, by)


def curves(runs: pd.DataFrame, epochs: pd.DataFrame, target: float, reference: pd.DataFrame | None) -> list[Curve]:
    """All curves of the tables `runs` and `epochs`, and the reference for what no full training tells anything about.

    A run counts if it reached `target` (top-1, a fraction), or did not in all of its epochs, or in as many as another
    of its batch needed at most. `reference` has the columns of `config/references/mlperf-rcp-resnet50.csv`. Raises
    NoAnswerError if nothing reached it.
    """
    learnt = epochs[epochs["top1"].notna()]
    first = learnt[learnt["top1"] >= target].groupby("run")["epoch"].min()
    best = learnt.groupby("run")["top1"].max()
    usable = finished(runs[runs["run"].isin(best.index)])
    usable = usable.assign(reached=usable["run"].map(first).astype("float64"), best=usable["run"].map(best))
    needed = usable.groupby([*CURVE, "global_batch"], dropna=False)["reached"].transform("max")
    enough = (usable["epochs"] >= usable["of_epochs"]) | (usable["epochs"] >= needed)
    counted = usable[usable["reached"].notna() | enough]
    all_curves = []
    for _, some in counted.groupby(list(CURVE), dropna=False, sort=True):
        points = {int(str(batch)): _point(alike) for batch, alike in some.groupby("global_batch")}
        plain = [None if pd.isna(value) else value for value in some[[*CURVE]].iloc[0]]
        all_curves.append(Curve(dict(zip(CURVE, plain, strict=True)), points, OWN))
    trained = successful(runs)
    for (dataset, model), some in trained.groupby(["dataset", "model"], sort=True):
        ours = counted[(counted["dataset"] == dataset) & (counted["model"] == model)]
        fits = {"dataset": dataset, "model": model} == REFERENCE_OF and math.isclose(target, REFERENCE_TARGET)
        if ours.empty and fits and reference is not None:
            keys = dict.fromkeys(CURVE) | REFERENCE_OF | {"recipe": REFERENCE_RECIPE, "schedule": REFERENCE_SCHEDULE}
            all_curves += [
                Curve(keys | {"options": options}, _reference(reference), REFERENCE) for options in {*some["options"]}
            ]
    if not any(point.epochs for curve in all_curves for point in curve.points.values()):
        raise NoAnswerError(_nothing(counted, target))
    return all_curves


def _point(runs: pd.DataFrame) -> BatchEpochs:
    reached = runs["reached"].dropna().tolist()
    whole = len(reached) == len(runs)
    return BatchEpochs(over_repeats(reached, noise=0) if whole else None, len(reached), len(runs))


def _reference(table: pd.DataFrame) -> dict[int, BatchEpochs]:
    """Two points of one batch count as their mean."""
    column = f"mean_epochs_to_{REFERENCE_TARGET}"
    points = {}
    for batch, some in table.groupby("global_batch"):
        n = int(some["runs"].sum())
        points[int(str(batch))] = BatchEpochs(Interval(float(some[column].mean()), None, None, n), n, n)
    return points


def _nothing(counted: pd.DataFrame, target: float) -> str:
    """Why there is no curve with a point."""
    wanted = f"top-1 {target:g}"
    if len(counted):
        best = counted.sort_values("best", kind="stable").iloc[-1]
        count = int(counted["reached"].notna().sum())
        some = f"{count} of {len(counted)} trainings reached" if count else "no run reached"
        return f"{some} {wanted}; the best had {best['best']:.4g} ({best['run']})"
    others = f"MLPerf's reference knows {REFERENCE_OF['model']} on {REFERENCE_OF['dataset']} at {REFERENCE_TARGET} only"
    return f"nobody knows the epochs to {wanted}: no run was trained in full with a loader that learns, and {others}"
