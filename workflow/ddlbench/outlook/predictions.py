"""Rates, time, energy and price of training that nobody ran: more workers, another machine, batch, model, precision.

`snakemake predict` calls `make`; `changes.py` has the formulas and says when nothing can be said. docs/prediction.md
explains it to people.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.analysis import together
from ddlbench.analysis.prediction import TooLittleError, _priors, last_rate
from ddlbench.analysis.scaling import interval_of
from ddlbench.analysis.statistics import Interval
from ddlbench.core import layout, registry
from ddlbench.core.plural import around, count_of, digits, duration
from ddlbench.core.program import IMAGES
from ddlbench.outlook import NoAnswerError
from ddlbench.outlook.changes import AS_IT_IS, KINDS, RATE, Change, ChangedRate, Question, Series, all_series
from ddlbench.outlook.study import given
from ddlbench.settings.config import ConfigError, one_of
from ddlbench.settings.machine import Machine
from ddlbench.settings.own_models import is_own
from ddlbench.show.figures import Options, _looks, _style

NAME = "predictions"  # of table and figure
MEASURED, PREDICTED = "measured", "predicted"
RATES = ("images_per_s", "images_per_s_low", "images_per_s_high")
HOURS = ("train_h", "train_h_low", "train_h_high", "worker_hours", "price", "energy_kwh")
NUMBERS = ("basis", *RATES, "efficiency", *HOURS, "next_run", "why_not")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


def asked(what_if: Mapping[str, Any] | None) -> tuple[list[Change], list[int]]:
    """Key `what_if` as changes, each tried alone, the first being none, and worker counts, none for the default ones.

    Raises ConfigError if a model or a precision is not known.
    """
    values = {kind: value for kind, value in (what_if or {}).items() if value is not None}
    listed = {kind: [*value] if isinstance(value, list | tuple) else [value] for kind, value in values.items()}
    changes = [Change(), *(Change(kind, value) for kind in KINDS for value in dict.fromkeys(listed.get(kind, ())))]
    for kind, allowed in (("model", registry.models()), ("precision", PRECISIONS)):
        for value in listed.get(kind, ()):
            if value not in allowed and not is_own(str(value)):
                where = f"config/config.yaml: what_if.{kind}"
                raise ConfigError(f"{where}: {value}: unknown; {one_of(allowed, value)}")
    return changes, sorted({*listed.get("workers", ())})


def make(config: Mapping[str, Any], folders: Sequence[Path], results: Path = layout.RESULTS) -> str:
    """Writes the table and the figure; what people read. Raises NoAnswerError, ConfigError."""
    changes, workers = asked(config["what_if"])
    study = given(config, folders, results)
    runs = study.tables["runs"]
    series = all_series(runs, study.plan.machine.workers_per_node)
    with study.named():
        if not series:
            raise NoAnswerError("no finished timed run of a series over worker counts; train first")
    table = rows(series, study.plan.machine, changes, workers, study.planned_workers())
    written, drawn = study.table(NAME, table), study.figure(NAME)
    _style.save(draw(table, study.options()), drawn)
    how = f"All numbers: {written}; the first series drawn: {drawn}.png; how they are computed: docs/prediction.md"
    return "\n".join([*lines(table, together.sample(runs)), *study.refused, how])


def counts(measured: Sequence[int], planned: Iterable[int]) -> list[int]:
    """Those beyond the largest measured one: three doublings, and what the study plans, up to eight times it."""
    largest = max(measured)
    return sorted({largest * 2**k for k in (1, 2, 3)} | {n for n in planned if largest < n <= 8 * largest})


def rows(
    series: Sequence[Series],
    machine: Machine,
    changes: Sequence[Change] = (Change(),),
    workers: Sequence[int] = (),
    planned: Iterable[int] = (),
) -> list[dict[str, Any]]:
    """One row per series, change and worker count: those measured, and `workers`, or without them some beyond
    (`counts`). A row says in `why_not` why nothing can be said; its numbers are then null."""
    priors, planned = _priors.read(), {*planned}
    return [
        _row(Question(each, change, count, series, machine, priors))
        for each in series
        for change in changes
        for count in sorted({*each.measured.workers, *(workers or counts(each.measured.workers, planned))})
    ]


def _row(question: Question) -> dict[str, Any]:
    """The row of one question. A larger count has the batch per worker of the largest measured one, under strong
    scaling its share of the global batch."""
    series, change, count = question.series, question.change, question.workers
    row: dict[str, Any] = {"series": series.name, **series.settings}
    row |= {"measured": " ".join(map(str, series.measured.workers)), "runs": " ".join(series.runs)}
    row |= {"change": change.kind, "what": change.name, "workers": count, "by": PREDICTED}
    row |= {"batch_per_worker": question.batch_after, **dict.fromkeys(NUMBERS)}
    rate: Interval | ChangedRate
    if change.kind == AS_IT_IS and (point := series.at(count)):
        rate = interval_of(point, RATE)
        row |= {"by": MEASURED, "basis": f"n = {rate.n}"}
    else:
        try:
            rate = question.rate()
        except TooLittleError as error:
            return row | {"why_not": str(error)}
        row["basis"] = rate.basis
        if change.kind == AS_IT_IS:
            between = [n for n in counts(series.measured.workers, ()) if n < count]
            row["next_run"] = last_rate.next_run(series.measured, count, dict.fromkeys(between, 1.0))
    row |= dict(zip(RATES, (rate.middle, rate.low, rate.high), strict=True))
    return row | _numbers(question, row, rate)


def _numbers(question: Question, row: Mapping[str, Any], rate: Interval | ChangedRate) -> dict[str, Any]:
    """What follows from the rate [images/s], of which the ends may be unknown."""
    series, machine, count = question.series, question.machine, question.workers
    efficiency = rate.middle / count / (series.measured.images_per_s[0] / series.measured.workers[0])
    if row["batch_per_worker"] * count > series.images:  # no epoch has a single step
        why = "a step holds more images than an epoch has: another data set, and no hours"
        return {"efficiency": efficiency, "basis": f"{row['basis']}; {why}"}
    images = series.images * series.epochs
    hours = images / rate.middle / 3600
    high, low = (None if end is None else images / end / 3600 for end in (rate.low, rate.high))
    numbers: dict[str, Any] = {"efficiency": efficiency, "train_h": hours, "train_h_low": low, "train_h_high": high}
    numbers["worker_hours"] = hours * count
    if machine.price_per_gpu_hour is not None:
        numbers["price"] = hours * count * machine.price_per_gpu_hour
    if row["change"] == AS_IT_IS and series.power_w is not None:
        numbers["energy_kwh"] = series.power_w * count * hours / 1000
    return numbers


def lines(table: Sequence[Mapping[str, Any]], sample: str = IMAGES) -> list[str]:
    """The rows as text for a terminal, of changes the largest count that something can be said of; what is not
    predicted for one reason stands below it. `sample` is what steps count."""
    whole = "training in full" if sample == IMAGES else f"as many {sample} as the longest run had"
    text = [f"predicted {sample}/s (95 % interval), efficiency of throughput, time of {whole}:"]
    refused: dict[tuple[str, str], dict[str, list[str]]] = {}  # worker counts by series and reason, then by change
    largest = {(row["series"], row["what"]): row["workers"] for row in table if row["why_not"] is None}
    changed = any(row["change"] != AS_IT_IS for row in table)
    for row in table:
        title = f"{row['series']} (measured: {row['measured']} worker{'s' * (row['measured'] != '1')})"
        what = f", {row['what']}" * (row["change"] != AS_IT_IS)
        if row["why_not"] is not None:
            refused.setdefault((title, row["why_not"]), {}).setdefault(what, []).append(str(row["workers"]))
        elif row["by"] == PREDICTED and (not changed or row["workers"] == largest[row["series"], row["what"]]):
            if f"  {title}:" not in text:
                text.append(f"  {title}:")
            hours = [] if row["train_h"] is None else [duration(3600 * row["train_h"], digits)]
            numbers = ", ".join([around(*(row[name] for name in RATES)), f"{row['efficiency']:.2f}", *hours])
            numbers += f"; {row['basis']}" * (changed or not hours)
            text.append(f"    {count_of(row['workers'], 'worker')}{what}: {numbers}")
            if row["next_run"]:
                text.append(f"      a run with {row['next_run']} workers would narrow this most per hour")
    series: dict[tuple[str, str], list[str]] = {}
    for (title, why), by_change in refused.items():
        counted = "; ".join(f"{', '.join(numbers)} workers{what}" for what, numbers in by_change.items())
        series.setdefault((counted, why), []).append(title)
    for (counted, why), titles in series.items():
        text += [f"  not {counted}: {why}:", *(f"      {title}" for title in titles)]
    return text


def draw(rows: Sequence[Mapping[str, Any]], options: Options) -> Figure:
    """The rate of one worker over worker counts: one panel per kind of change, of the series with the largest measured
    count; the others are in the table. It is no member of `figures/`: it needs the machine and predictions.

    Colourless filled markers are measured; lines and hollow markers are predicted, with the interval of each.
    """
    table = pd.DataFrame(rows)
    measured = table[table["by"] == MEASURED].groupby("series")["workers"].agg(["max", "size"])
    shown = measured.sort_values(["max", "size"], ascending=False, kind="stable").index[0]
    table = table[(table["series"] == shown) & table["why_not"].isna()]
    names = [*dict.fromkeys(table["what"])]
    table = table.astype(dict.fromkeys(RATES, float)).sort_values("workers", kind="stable")
    table[[*RATES]] = table[[*RATES]].div(table["workers"], axis=0)
    kinds = [kind for kind in KINDS if (table["change"] == kind).any()] or [AS_IT_IS]
    as_it_is = table[table["change"] == AS_IT_IS]
    by_panel = pd.concat([table[table["change"].isin([kind, AS_IT_IS])].assign(panel=kind) for kind in kinds])
    figure, panels = _style.panels(by_panel, ["panel"], options)
    figure.suptitle(f"{options.title}\n{shown}", wrap=True)
    for axes, some in panels:
        axes.set_title(some["panel"].iloc[0].replace("_", " "))
        _base(axes, as_it_is)
        for name, points in some[some["change"] != AS_IT_IS].groupby("what", sort=False):
            style = {**_looks.nth_style(names.index(str(name)) - 1), "markerfacecolor": "white", "linewidth": 1.2}
            middle, low, high = (points[column] for column in RATES)
            axes.plot(points["workers"], middle, **style, label=name)
            _style.bars(axes, points["workers"], middle, low, high, {"color": style["color"]})
    _style.count_axis(figure, table["workers"])
    for axes in figure.axes:
        axes.set_ylim(bottom=0)
        axes.tick_params(axis="x", labelrotation=60)
        axes.plot([], [], linestyle="none", label="band, bar: 95 % interval")
    _style.labels(figure, _style.worker_label(options), f"{options.sample}/s of one worker (predicted)")
    _style.legend(figure)
    return figure


def _base(axes: Any, rows: pd.DataFrame) -> None:
    """What was measured, and what is predicted from it without any change."""
    measured, beyond = rows[rows["by"] == MEASURED], rows[rows["by"] != MEASURED]
    look = {"color": "black", "marker": "o", "zorder": 4}
    middle, low, high = (measured[name] for name in RATES)
    axes.plot(measured["workers"], middle, **look, linestyle="none", label="measured: as it is")
    _style.bars(axes, measured["workers"], middle, low, high, look)
    axes.fill_between(
        beyond["workers"], beyond["images_per_s_low"], beyond["images_per_s_high"], color="0.8", linewidth=0, zorder=1
    )
    hollow = {**look, "markerfacecolor": "white", "linestyle": ":"}
    axes.plot(beyond["workers"], beyond["images_per_s"], **hollow, label="predicted: as it is")
