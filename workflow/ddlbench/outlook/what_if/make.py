"""From the configuration and records to table, figure and text. `snakemake what_if` calls it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis.collect import collect
from ddlbench.analysis.prediction import _priors
from ddlbench.analysis.prediction._priors import Priors
from ddlbench.core import files, layout, registry
from ddlbench.outlook.what_if import NothingToComputeError, computed, picture
from ddlbench.outlook.what_if import series as of_records
from ddlbench.outlook.what_if.changes import AS_IT_IS, DOUBLINGS, Change, asked
from ddlbench.outlook.what_if.computed import COMPUTED, MEASURED
from ddlbench.outlook.what_if.series import Series
from ddlbench.plan import reads, runs
from ddlbench.settings.machine import Machine, load_machine
from ddlbench.settings.study import load_study
from ddlbench.show.figures import Options

NAME = "what_if"  # of table and figure
NUMBERS = (
    *("images_per_s", "images_per_s_low", "images_per_s_high", "efficiency"),
    *("train_h", "train_h_low", "train_h_high", "worker_hours", "price"),
)


def make(config: Mapping[str, Any], folders: Sequence[Path], results: Path = layout.RESULTS) -> tuple[str, list[Path]]:
    """Writes the table and the figure; (the text, their paths). Raises NothingToComputeError, ConfigError.

    Tables of runs are made anew from the records that are there, so that it also works while a study is not finished.
    """
    changes, workers = asked(config["what_if"])
    study, machine = load_study(config["study"]), load_machine(config["machine"])
    plan = runs.make_plan(study, machine, config["account"], reads.images(study, machine, config["data"]["sources"]))
    with tempfile.TemporaryDirectory() as aside:
        read = {} if study.records is None else {"read": registry.member("records", study.records.kind).read}
        collect(folders, Path(aside), dict(machine.peak_tflops_per_worker), runs.digests(plan), **read)
        measured = pd.read_parquet(Path(aside, "runs.parquet"))
    measured_series = of_records.series(measured, machine.workers_per_node) if len(measured) else []
    if not measured_series:
        raise NothingToComputeError(
            f"study {study.name} on machine {machine.name} has no finished timed run of a weak-scaling series; train "
            "first"
        )
    made = rows(measured_series, changes, workers, machine, _priors.read())
    table = results / study.name / "tables" / f"{NAME}.csv"
    table.parent.mkdir(parents=True, exist_ok=True)
    with files.aside(table) as hidden:
        pd.DataFrame(made).to_csv(hidden, index=False)
    device = "accelerator" if study.records else machine.device
    names = tuple(sorted({run.spec.framework for run in plan.runs.values()}))
    drawn = results / study.name / "figures" / f"{NAME}.png"
    picture.save(made, Options(study.title, device, machine.device_name, names), drawn.with_suffix(""))
    return "\n".join(lines(made)), [table, drawn]


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
    ends = {end: point[f"throughput_images_per_s{end}"] for end in ("", "_low", "_high")}
    basis = f"n = {point['repeats']}"
    return {**_numbers(series, ends, int(point["workers"])), "by": MEASURED, "basis": basis} | {
        "batch_per_worker": dict(zip(series.measured.workers, series.measured.batch_per_worker, strict=True))[
            int(point["workers"])
        ]
    }


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


def lines(made: Sequence[Mapping[str, Any]]) -> list[str]:
    """What people read: per series and change the largest count that something can be said of, and why not more."""
    said = ["computed, not measured: images/s (95 % interval), a worker's rate by that of the smallest measured count"]
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
