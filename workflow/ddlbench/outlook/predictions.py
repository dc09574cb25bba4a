"""Rates, time, energy and price of training on more workers than were measured.

`snakemake predict` calls `make`; `analysis/prediction/last_rate.py` has the formula.
docs/prediction.md explains it to people.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddlbench.analysis import prediction_priors, together
from ddlbench.analysis.prediction import TooLittleError, last_rate
from ddlbench.analysis.prediction_priors import Priors
from ddlbench.analysis.price import power_w, tariff
from ddlbench.analysis.scaling import interval_of
from ddlbench.core import layout
from ddlbench.core.formatting import around, count_of, digits, duration
from ddlbench.core.program import IMAGES
from ddlbench.outlook import NoAnswerError
from ddlbench.outlook.series import Series, all_series
from ddlbench.outlook.study import read_study
from ddlbench.settings.machine import Machine
from ddlbench.show.predicted import MEASURED, RATES, draw, save

NAME = "predictions"  # of table and figure
RATE = "throughput_images_per_s"  # of measured points
PREDICTED = "predicted"
HOURS = ("train_h", "train_h_low", "train_h_high", "worker_hours", "price", "energy_kwh")
NUMBERS = ("basis", *RATES, "efficiency", *HOURS, "next_run", "why_not")
WIDEST = 10.0  # an interval that spans more than this factor is of no use


def make(config: Mapping[str, Any], folders: Sequence[Path], results: Path = layout.RESULTS) -> str:
    """Write the table and the figure, and return the text for people.

    Raises NoAnswerError, ConfigError.
    """
    study = read_study(config, folders, results)
    runs = study.tables["runs"]
    series = all_series(runs, study.plan.machine.workers_per_node)
    with study.with_context():
        if not series:
            raise NoAnswerError("no finished timed run of a series over worker counts; train first")
    table = rows(series, study.plan.machine, study.planned_workers())
    written, drawn = study.write_table(NAME, table), study.figure(NAME)
    save(draw(table, study.options()), drawn)
    how = (
        f"All numbers: {written}; the first series drawn: {drawn}.png; how they are computed:"
        " docs/prediction.md"
    )
    return "\n".join([*lines(table, together.sample(runs)), *study.refused, how])


def counts(measured: Sequence[int], planned: Iterable[int]) -> list[int]:
    """Return the worker counts beyond the largest measured one: three doublings, and what the study
    plans, up to eight times it.
    """
    largest = max(measured)
    return sorted(
        {largest * 2**k for k in (1, 2, 3)} | {n for n in planned if largest < n <= 8 * largest}
    )


def rows(
    series: Sequence[Series], machine: Machine, planned: Iterable[int] = ()
) -> list[dict[str, Any]]:
    """Return one row per series and worker count: the measured ones, and some beyond (`counts`).

    If nothing can be predicted, `why_not` of the row has the reason, and its numbers are null.
    """
    priors, planned = prediction_priors.read(), {*planned}
    return [
        _row(each, count, machine, priors)
        for each in series
        for count in sorted({*each.measured.workers, *counts(each.measured.workers, planned)})
    ]


def _row(series: Series, count: int, machine: Machine, priors: Priors) -> dict[str, Any]:
    """Return the row of one worker count of a series.

    A larger count has the batch per worker of the largest measured one; under strong scaling, its
    share of the global batch.
    """
    row: dict[str, Any] = {"series": series.name, **series.settings}
    row |= {"measured": " ".join(map(str, series.measured.workers)), "runs": " ".join(series.runs)}
    row |= {
        "workers": count,
        "by": PREDICTED,
        "batch_per_worker": series.batch_at(count),
        **dict.fromkeys(NUMBERS),
    }
    if point := series.at(count):
        rate = interval_of(point, RATE)
        row |= {"by": MEASURED, "basis": f"n = {rate.n}"}
        return row | _numbers(series, row, machine, (rate.middle, rate.low, rate.high))
    try:
        rates = predicted(series, count, priors)
    except TooLittleError as error:
        return row | {"why_not": str(error)}
    between = [n for n in counts(series.measured.workers, ()) if n < count]
    row["next_run"] = last_rate.next_run(series.measured, count, dict.fromkeys(between, 1.0))
    row["basis"] = "last rate"
    return row | _numbers(series, row, machine, rates)


def predicted(series: Series, workers: int, priors: Priors) -> tuple[float, float, float]:
    """Return the rate of all workers [images/s] and its 95 % confidence interval. Raises
    TooLittleError, which names the measurement that would help, also where the interval is too wide
    to be of use.
    """
    forecast = last_rate.predict(series.measured, [workers], [series.batch_at(workers)], priors)
    middle, low, high = (
        float(ends[0]) for ends in (forecast.images_per_s, forecast.low, forecast.high)
    )
    if high > WIDEST * low:
        raise TooLittleError(
            f"the confidence interval would span more than a factor of {WIDEST:g}; measure"
            f" {2 * series.measured.workers[-1]} workers or more, with repeats"
        )
    return middle, low, high


def _numbers(
    series: Series,
    row: Mapping[str, Any],
    machine: Machine,
    rates: tuple[float, float | None, float | None],
) -> dict[str, Any]:
    """Return the `rates` [images/s], whose ends may be unknown, and the numbers that follow from
    them.
    """
    middle, low, high = rates
    numbers: dict[str, Any] = dict(zip(RATES, rates, strict=True))
    count = row["workers"]
    numbers["efficiency"] = (
        middle / count / (series.measured.images_per_s[0] / series.measured.workers[0])
    )
    if row["batch_per_worker"] * count > series.images:  # no epoch has a single step
        why = "the global batch is larger than an epoch, so no hours are predicted: take a larger data set"
        return numbers | {"basis": f"{row['basis']}; {why}"}
    images = series.images * series.epochs
    hours = images / middle / 3600
    numbers["train_h"] = hours
    numbers["train_h_low"] = None if high is None else images / high / 3600
    numbers["train_h_high"] = None if low is None else images / low / 3600
    numbers["worker_hours"] = hours * count
    # Others' records say how many workers their nodes have.
    node = series.measured.workers_per_node
    sold = replace(tariff(machine), workers_per_node=node)
    nodes = -(-count // node)
    numbers["price"] = sold.price(hours, sold.workers_blocked(count, nodes))
    watts = power_w(
        series.draws, count, nodes, (machine.power_per_worker_w, machine.power_per_node_w)
    )
    numbers["energy_kwh"] = None if watts is None else sold.energy_kwh(watts * hours * 3600)
    return numbers


def lines(table: Sequence[Mapping[str, Any]], sample: str = IMAGES) -> list[str]:
    """Format the rows as text for a terminal; below it stands what is not predicted, by reason.

    `sample` is what steps count.
    """
    whole = "training in full" if sample == IMAGES else f"as many {sample} as the longest run had"
    text = [
        f"predicted {sample}/s (95 % confidence interval), efficiency of throughput, time of {whole}:"
    ]
    refused: dict[tuple[str, str], list[str]] = {}  # worker counts by series and reason
    for row in table:
        title = (
            f"{row['series']} (measured: {row['measured']} worker{'s' * (row['measured'] != '1')})"
        )
        if row["why_not"] is not None:
            refused.setdefault((title, row["why_not"]), []).append(str(row["workers"]))
        elif row["by"] == PREDICTED:
            if f"  {title}:" not in text:
                text.append(f"  {title}:")
            hours = [] if row["train_h"] is None else [duration(3600 * row["train_h"], digits)]
            numbers = ", ".join(
                [around(*(row[name] for name in RATES)), f"{row['efficiency']:.2f}", *hours]
            )
            if not hours:
                numbers += f"; {row['basis']}"
            text.append(f"    {count_of(row['workers'], 'worker')}: {numbers}")
            if row["next_run"]:
                text.append(
                    f"      a run with {row['next_run']} workers would narrow this interval most"
                    " per hour"
                )
    series: dict[tuple[str, str], list[str]] = {}
    for (title, why), numbers_of_workers in refused.items():
        series.setdefault((", ".join(numbers_of_workers), why), []).append(title)
    for (counted, why), titles in series.items():
        text += [
            f"  not predicted for {counted} workers: {why}:",
            *(f"      {title}" for title in titles),
        ]
    return text
