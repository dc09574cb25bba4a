"""Candidates: framework, loader, workers, batch and schedule with their time, energy and price to the target.

Time = epochs to the target x images of an epoch / throughput. It is that of training steps: validation, checkpoints and
starts of epochs come on top, for all candidates. Throughput is the median of the runs, or predicted beyond them. Of
others' records it is the time that their logs say, with everything in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from ddlbench.analysis.prediction import TooLittleError, _priors, _series, last_rate
from ddlbench.analysis.prediction._series import Scaling
from ddlbench.analysis.scaling import interval_of
from ddlbench.analysis.statistics import Interval, over_repeats
from ddlbench.analysis.together import sample
from ddlbench.core import registry
from ddlbench.outlook import predictions
from ddlbench.outlook.changes import RATE
from ddlbench.outlook.predictions import MEASURED, PREDICTED
from ddlbench.outlook.recommendation.convergence import CURVE, REFERENCE, Curve, Epochs
from ddlbench.settings.machine import Machine

if TYPE_CHECKING:
    from ddlbench.analysis.prediction._priors import Priors

LOGGED = "the logged time"
NUMBERS = (
    *("images_per_s", "images_per_s_low", "images_per_s_high", "epochs_to_target", "epochs_low", "epochs_high"),
    *("hours", "hours_low", "hours_high", "worker_hours", "price", "energy_kwh"),
)
# What two candidates share that have the same epochs to the target: their ratio does not depend on them.
SAME_EPOCHS = (*CURVE, "global_batch")


@dataclass(frozen=True)
class Speed:
    """The throughput of one worker count of a series [images/s], of so many repeats, or of none if it is predicted."""

    workers: int
    workers_per_node: int
    global_batch: int
    rate: Interval
    by: str
    next_run: int | None = None

    @property
    def nodes(self) -> int:
        return -(-self.workers // self.workers_per_node)


def rows(
    runs: pd.DataFrame, curves: Sequence[Curve], machine: Machine | None, planned: Iterable[int] = ()
) -> list[dict[str, Any]]:
    """One row per candidate, in the order of the series; those that are none say in `why_not` why.

    `runs` is the table of `collect`. Without a machine there are measured worker counts only, and no price. A step
    takes as long under any schedule and in any epoch: runs that differ in these only are repeats of one speed.
    """
    usable = runs[[name is None or registry.member("loaders", name).LEARNS for name in runs["loader"]]]
    usable = usable.assign(schedule="any", epochs=0, of_epochs=0)
    priors = _priors.read() if machine else None
    table = []
    for line in _series.lines(usable):
        first = line.first
        fitting = [curve for curve in curves if _fits(curve, first)]
        for speed in _speeds(line, machine, planned, priors):
            row = {key: first[key] for key in ("dataset", "model", "framework", "loader", "options", "recipe")}
            row |= {"loader": first["named"], "system": None, "accelerator": None}
            if machine is None:
                device = line.runs["gpu"].iloc[0]
                row |= {"system": first["machine"], "accelerator": None if pd.isna(device) else device}
            if not fitting:
                why = f"no full training of {first['model']} with recipe {first['recipe']} says how long it takes"
                table.append({**row, "schedule": None, "of_epochs": None, **_row(speed, why, line, machine)})
            for curve in fitting:
                settings = {key: curve.settings[key] for key in ("schedule", "of_epochs")}
                if curve.source == REFERENCE:
                    settings["recipe"] = f"{first['recipe']} (speed), {curve.settings['recipe']} (epochs)"
                table.append({**row, **settings, **_row(speed, curve.at(speed.global_batch), line, machine)})
    return table


def of_others(runs: pd.DataFrame, epochs: pd.DataFrame, target: float) -> pd.DataFrame:
    """Runs of others' records, as `rows` and `convergence.curves` want them; without those whose batch nobody says.

    `reached_s` is when their logs reached the target. What a submitter trains with is its own: nobody else's epochs to
    the target count for it. All runs were full trainings, which end at the target.
    """
    runs = runs[runs["global_batch"].notna()]
    recipe = runs["machine"] + "'s own"
    reached = epochs[epochs["top1"] >= target].groupby("run")["validated_s"].min()
    full = runs.assign(epochs=0, of_epochs=0, batch=runs["global_batch"])
    full = full.assign(reached_s=full["run"].map(reached).astype("float64"))
    return full.assign(recipe=recipe, options="{}", loader=None, schedule=None)


def _fits(curve: Curve, series: pd.Series[Any]) -> bool:
    """Whether a series trains what a curve is of. The reference has a recipe of its own."""
    same = ("dataset", "model", "options") if curve.source == REFERENCE else ("dataset", "model", "options", "recipe")
    return all(curve.settings[key] == series[key] for key in same)


def _speeds(line: Scaling, machine: Machine | None, planned: Iterable[int], priors: Priors | None) -> Iterator[Speed]:
    """The measured counts of a series, then those that are predicted."""
    for point in line.points.to_dict("records"):
        at = line.at(point["workers"])
        count, node, each = int(point["workers"]), int(at["workers_per_node"].iloc[0]), point["batch_per_worker"]
        global_batch = at["batch"].iloc[0] if "batch" in at else point["global_batch"]
        batch = int(global_batch) if pd.isna(each) else int(each) * count
        yield Speed(count, node, batch, interval_of(point, RATE), MEASURED)
    batches = line.batches
    if machine is None or priors is None or not batches or line.of_programs:
        return  # nobody knows on how many samples a program would train there
    measured = line.measured(machine.workers_per_node, batches)
    counts = predictions.counts(measured.workers, planned)
    between = [2**k for k in range(20) if measured.workers[0] < 2**k < measured.workers[-1]]
    for count in sorted({*counts, *between} - {*measured.workers}):
        if count > machine.workers:
            continue
        of_one = line.whole / count if line.whole else batches[-1]
        try:
            prediction = last_rate.predict(measured, [count], [of_one], priors)
        except TooLittleError:  # as beyond a node from points within one: said once, by `predict`
            continue
        rate, low, high = (float(each[0]) for each in (prediction.images_per_s, prediction.low, prediction.high))
        shorter = dict.fromkeys([n for n in (*counts, count) if n <= count], 1.0)
        next_run, node = last_rate.next_run(measured, count, shorter), min(count, machine.workers_per_node)
        yield Speed(count, node, round(of_one * count), Interval(rate, low, high, 0), PREDICTED, next_run)


def _row(speed: Speed, epochs: Epochs | str, line: Scaling, machine: Machine | None) -> dict[str, Any]:
    rate, measured = speed.rate, " ".join(map(str, line.points["workers"]))
    row: dict[str, Any] = {"workers": speed.workers, "global_batch": speed.global_batch}
    row |= {"speed_by": speed.by, "repeats": rate.n, "measured_workers": measured}
    row |= {"epochs_by": None, "interval_of": None, **dict.fromkeys(NUMBERS), "currency": None}
    row |= {"images_per_s": rate.middle, "images_per_s_low": rate.low, "images_per_s_high": rate.high}
    row |= {"sample": sample(line.runs), "next_run": speed.next_run}
    row["why_not"] = epochs if isinstance(epochs, str) else None
    if isinstance(epochs, str):
        return row
    row |= {"epochs_by": epochs.by, "epochs_to_target": epochs.middle}
    row |= {"epochs_low": epochs.low, "epochs_high": epochs.high}
    hours = epochs.middle * line.images_at(speed.workers) / rate.middle / 3600
    logged = line.at(speed.workers)["reached_s"].dropna().tolist() if "reached_s" in line.runs else []
    if logged:
        logged_hours = over_repeats(logged)
        hours = logged_hours.middle / 3600
        if logged_hours.low is not None and logged_hours.high is not None:
            row |= {"hours_low": logged_hours.low / 3600, "hours_high": logged_hours.high / 3600, "interval_of": LOGGED}
    taken = speed.nodes * machine.workers_per_node if machine else speed.workers  # timed runs have nodes to themselves
    row |= {"hours": hours, "worker_hours": hours * taken}
    spread = None if logged else half_widths(row)
    if spread:
        row |= {"hours_low": hours * math.exp(-spread[0]), "hours_high": hours * math.exp(spread[1])}
        row["interval_of"] = "rate" if epochs.low is None else "rate and epochs"
    if machine and machine.price_per_gpu_hour is not None:
        row |= {"price": hours * taken * machine.price_per_gpu_hour, "currency": machine.currency}
    watts = _power_w(speed, machine, line.power_w)
    if watts is not None:
        row["energy_kwh"] = watts * hours / 1000 * ((machine.pue if machine else None) or 1.0)
    return row


def half_widths(row: dict[str, Any], epochs: bool = True) -> tuple[float, float] | None:
    """How far ln(hours) reaches down and up in 95 % of cases: rate and epochs err apart, so their squares add up.

    None where the rate's interval is not known, or the epochs' of own runs. Of the reference, whose interval nobody
    published, only the rate's counts; so it does without `epochs`.
    """
    if row.get("interval_of") == LOGGED:
        return math.log(row["hours"] / row["hours_low"]), math.log(row["hours_high"] / row["hours"])
    low, high = row["images_per_s_low"], row["images_per_s_high"]
    if low is None or high is None:
        return None
    down, up = math.log(high / row["images_per_s"]), math.log(row["images_per_s"] / low)
    if not epochs or str(row["epochs_by"]).startswith(REFERENCE):
        return down, up
    if row["epochs_low"] is None or row["epochs_high"] is None:
        return None
    middle = row["epochs_to_target"]
    return (
        math.hypot(down, math.log(middle / row["epochs_low"])),
        math.hypot(up, math.log(row["epochs_high"] / middle)),
    )


def _power_w(speed: Speed, machine: Machine | None, of_worker_w: float | None) -> float | None:
    """Of all workers: as the series' runs measured it, else by the machine's file [W]."""
    if of_worker_w is not None:
        return of_worker_w * speed.workers
    if machine is None or machine.power_per_worker_w is None or machine.power_per_node_w is None:
        return None
    return speed.workers * machine.power_per_worker_w + speed.nodes * machine.power_per_node_w
