"""From the configuration and records to table, figure and text. `snakemake what_if` calls it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis import together
from ddlbench.analysis.prediction import _priors
from ddlbench.analysis.prediction._priors import Priors
from ddlbench.core import layout
from ddlbench.core.program import IMAGES
from ddlbench.outlook import NoAnswerError
from ddlbench.outlook.study import given
from ddlbench.outlook.what_if import computed, picture
from ddlbench.outlook.what_if import series as of_records
from ddlbench.outlook.what_if.changes import AS_IT_IS, DOUBLINGS, Change, asked
from ddlbench.outlook.what_if.computed import COMPUTED, MEASURED
from ddlbench.outlook.what_if.series import Series
from ddlbench.settings.machine import Machine
from ddlbench.show.figures import _style

NAME = "what_if"  # of table and figure
NUMBERS = (
    *("images_per_s", "images_per_s_low", "images_per_s_high", "efficiency"),
    *("train_h", "train_h_low", "train_h_high", "worker_hours", "price"),
)


def make(config: Mapping[str, Any], folders: Sequence[Path], results: Path = layout.RESULTS) -> str:
    """Writes the table and the figure; what people read. Raises NoAnswerError, ConfigError."""
    changes, workers = asked(config["what_if"])
    of = given(config, folders, results)
    runs = of.tables["runs"]
    measured_series = of_records.series(runs, of.machine.workers_per_node) if len(runs) else []
    with of.named():
        if not measured_series:
            raise NoAnswerError("no finished timed run of a weak-scaling series; train first")
    made = rows(measured_series, changes, workers, of.machine, _priors.read())
    table, drawn = of.table(NAME, made), of.figure(NAME)
    _style.save(picture.draw(made, of.options()), drawn)
    how = f"All numbers: {table}; the first series drawn: {drawn}.png; how they are computed: docs/prediction.md"
    return "\n".join([*lines(made, together.sample(runs)), how])


def rows(
    measured_series: Sequence[Series],
    changes: Sequence[Change],
    workers: Sequence[int],
    machine: Machine,
    priors: Priors,
) -> list[dict[str, Any]]:
    """One row per series, change and worker count; measured counts have a row as they are.

    A row says in `why_not` why nothing can be said; its numbers are then null.
    """
    made = []
    for series in measured_series:
        points = {int(point["workers"]): point for point in series.points}
        for change in changes:
            for count in computed.counts(series, workers, DOUBLINGS):
                row: dict[str, Any] = {"series": series.name, **series.of, "change": change.kind, "what": change.name}
                row |= {"workers": count, "by": COMPUTED, **dict.fromkeys(NUMBERS)}
                row |= {"batch_per_worker": None, "basis": None, "why_not": None}
                if change.kind == AS_IT_IS and count in points:
                    row |= _measured(series, points[count])
                else:
                    try:
                        row |= _computed(
                            series, computed.rate(series, change, count, measured_series, machine, priors), count
                        )
                    except computed.NothingToSayError as error:
                        row["why_not"] = str(error)
                batch = row["batch_per_worker"]
                if batch is not None and batch * count > series.images:  # no epoch has a single step
                    row |= dict.fromkeys(("train_h", "train_h_low", "train_h_high"))
                    row["basis"] += "; a step holds more images than an epoch has: another data set, and no hours"
                if row["train_h"] is not None:
                    row["worker_hours"] = row["train_h"] * count
                    price = machine.price_per_gpu_hour
                    row["price"] = None if price is None else row["worker_hours"] * price
                made.append(row)
    return made


def _measured(series: Series, point: Mapping[str, Any]) -> dict[str, Any]:
    count, ends = int(point["workers"]), {end: point[f"throughput_images_per_s{end}"] for end in ("", "_low", "_high")}
    said = {"by": MEASURED, "basis": f"n = {point['repeats']}", "batch_per_worker": series.batches[count]}
    return _numbers(series, ends, count) | said


def _computed(series: Series, rate: computed.Rate, count: int) -> dict[str, Any]:
    ends = {"": rate.middle, "_low": rate.low, "_high": rate.high}
    return {**_numbers(series, ends, count), "basis": rate.basis, "batch_per_worker": rate.batch}


def _numbers(series: Series, ends: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Rates by the end of their name, and what follows from them."""
    known = {end: float(value) for end, value in ends.items() if value is not None and value == value}
    hours = {end: series.images * series.epochs / value / 3600 for end, value in known.items()}
    first = series.measured.images_per_s[0] / series.measured.workers[0]
    return {
        **{f"images_per_s{end}": known.get(end) for end in ends},
        "efficiency": known[""] / count / first,
        "train_h": hours[""],
        "train_h_low": hours.get("_high"),
        "train_h_high": hours.get("_low"),
    }


def lines(made: Sequence[Mapping[str, Any]], sample: str = IMAGES) -> list[str]:
    """What people read: per series and change the largest count that something can be said of, and why not more."""
    said = [
        f"computed, not measured: {sample}/s (95 % interval), a worker's rate by that of the smallest measured count"
    ]
    table = pd.DataFrame(made)
    for name, of_series in table.groupby("series", sort=False):
        said.append(f"  {name} (measured: {' '.join(map(str, _counts(of_series, MEASURED)))} workers)")
        refused: dict[str, dict[str, list[str]]] = {}  # worker counts by reason and change
        for what, some in of_series.groupby("what", sort=False):
            told = some[some["why_not"].isna() & (some["by"] == COMPUTED)]
            if len(told):
                last = told.iloc[-1]
                rate, low, high = (last[f"images_per_s{end}"] for end in ("", "_low", "_high"))
                where = f"{last['workers']} workers: {rate:.4g} ({low:.4g} to {high:.4g}), {last['efficiency']:.2f}"
                said.append(f"    {what}: {where}; {last['basis']}")
            for row in some[some["why_not"].notna()].to_dict("records"):
                refused.setdefault(row["why_not"], {}).setdefault(str(what), []).append(str(row["workers"]))
        for why, by_change in refused.items():
            which = "; ".join(f"{what}, {' '.join(counts)} workers" for what, counts in by_change.items())
            said.append(f"    nothing is said of: {which}: {why}")
    return said


def _counts(rows: pd.DataFrame, by: str) -> list[int]:
    return sorted({int(count) for count in rows.loc[rows["by"] == by, "workers"]})
