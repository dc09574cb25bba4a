"""What if: rates of training on another machine, with another batch, model or precision, computed from a study's runs.

`snakemake what_if` calls `make`; `changed_rates.py` has the formulas and says when nothing can be said.
docs/prediction.md explains it to people.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.analysis import together
from ddlbench.analysis.prediction import _priors
from ddlbench.analysis.prediction._priors import Priors
from ddlbench.core import layout, registry
from ddlbench.core.program import IMAGES
from ddlbench.outlook import NoAnswerError, changed_rates
from ddlbench.outlook.changed_rates import AS_IT_IS, BANDWIDTH, COMPUTED, KINDS, MEASURED, Change, Question, Series
from ddlbench.outlook.study import given
from ddlbench.settings.config import ConfigError, one_of
from ddlbench.settings.machine import Machine
from ddlbench.settings.own_models import is_own
from ddlbench.show.figures import Options, _looks, _style

NAME = "what_if"  # of table and figure
RATES = ("images_per_s", "images_per_s_low", "images_per_s_high")
HOURS = ("train_h", "train_h_low", "train_h_high")
NUMBERS = (*RATES, "efficiency", *HOURS, "worker_hours", "price")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
DOUBLINGS = 3  # beyond the largest measured count, if no counts are asked
MOST_WORKERS = 100_000


def asked(what_if: Mapping[str, Any] | None) -> tuple[list[Change], list[int]]:
    """Key `what_if` as changes, each tried alone, the first being none, and worker counts, none for the default ones.

    Without changes or counts half and twice the bandwidth are asked: every series can answer. Raises ConfigError if a
    model or a precision is not known.
    """
    values = {kind: value for kind, value in (what_if or {}).items() if value is not None} or {BANDWIDTH: [0.5, 2]}
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
    measured_series = changed_rates.series(runs, study.machine.workers_per_node) if len(runs) else []
    with study.named():
        if not measured_series:
            raise NoAnswerError("no finished timed run of a series over worker counts; train first")
    table = rows(measured_series, changes, workers, study.machine, _priors.read())
    written, drawn = study.table(NAME, table), study.figure(NAME)
    _style.save(draw(table, study.options()), drawn)
    how = f"All numbers: {written}; the first series drawn: {drawn}.png; how they are computed: docs/prediction.md"
    return "\n".join([*lines(table, together.sample(runs)), how])


def rows(
    measured_series: Sequence[Series],
    changes: Sequence[Change],
    workers: Sequence[int],
    machine: Machine,
    priors: Priors,
) -> list[dict[str, Any]]:
    """One row per series, change and worker count: those measured, as they are, and those asked, or some doublings
    beyond. A row says in `why_not` why nothing can be said; its numbers are then null."""
    table = []
    for series in measured_series:
        points, largest = {int(point["workers"]): point for point in series.points}, series.measured.workers[-1]
        beyond = workers or [n for k in range(1, DOUBLINGS + 1) if (n := largest * 2**k) <= MOST_WORKERS]
        for change in changes:
            for count in sorted({*series.measured.workers, *beyond}):
                row: dict[str, Any] = {"series": series.name, **series.settings}
                row |= {"change": change.kind, "what": change.name}
                row |= {"workers": count, "by": COMPUTED, **dict.fromkeys(NUMBERS)}
                row |= {"batch_per_worker": None, "basis": None, "why_not": None}
                if change.kind == AS_IT_IS and count in points:
                    point = points[count]
                    row |= {"by": MEASURED, "basis": f"n = {point['repeats']}"}
                    row["batch_per_worker"] = series.batches[count]
                    row |= _numbers(series, [point[f"throughput_{name}"] for name in RATES], count, machine)
                else:
                    try:
                        rate = Question(series, change, count, measured_series, machine, priors).rate()
                        row |= {"basis": rate.basis, "batch_per_worker": rate.batch}
                        row |= _numbers(series, [rate.middle, rate.low, rate.high], count, machine)
                    except changed_rates.NothingToSayError as error:
                        row["why_not"] = str(error)
                batch = row["batch_per_worker"]
                if batch is not None and batch * count > series.images:  # no epoch has a single step
                    row |= dict.fromkeys((*HOURS, "worker_hours", "price"))
                    row["basis"] += "; a step holds more images than an epoch has: another data set, and no hours"
                table.append(row)
    return table


def _numbers(series: Series, rates: Sequence[Any], count: int, machine: Machine) -> dict[str, Any]:
    """Columns NUMBERS of a rate [images/s] with the lower and upper end of its interval, which may be unknown."""
    images, middle, price = series.images * series.epochs, float(rates[0]), machine.price_per_gpu_hour
    low, high = (None if pd.isna(rate) else float(rate) for rate in rates[1:])
    shortest, longest = (None if rate is None else images / rate / 3600 for rate in (high, low))
    efficiency = middle / count / (series.measured.images_per_s[0] / series.measured.workers[0])
    hours = images / middle / 3600
    spent = (hours * count, None if price is None else hours * count * price)
    return dict(zip(NUMBERS, (middle, low, high, efficiency, hours, shortest, longest, *spent), strict=True))


def lines(table: Sequence[Mapping[str, Any]], sample: str = IMAGES) -> list[str]:
    """What people read: per series and change the largest count that something can be said of; and why not more, each
    reason once with the series that it is of."""
    text = [f"computed, not measured: {sample}/s (95 % interval), a worker's rate by that of the smallest count"]
    reasons: dict[str, list[str]] = {}
    for name, series in pd.DataFrame(table).groupby("series", sort=False):
        measured = sorted({*series.loc[series["by"] == MEASURED, "workers"]})
        text.append(f"  {name} (measured: {' '.join(map(str, measured))} workers)")
        refused: dict[str, dict[str, list[str]]] = {}  # worker counts by reason and change
        for what, some in series.groupby("what", sort=False):
            computed = some[some["why_not"].isna() & (some["by"] == COMPUTED)]
            if len(computed):
                last = computed.iloc[-1]
                rate, low, high = last[[*RATES]]
                where = f"{last['workers']} workers: {rate:.4g} ({low:.4g} to {high:.4g}), {last['efficiency']:.2f}"
                text.append(f"    {what}: {where}; {last['basis']}")
            for row in some[some["why_not"].notna()].to_dict("records"):
                refused.setdefault(row["why_not"], {}).setdefault(str(what), []).append(str(row["workers"]))
        for why, by_change in refused.items():
            which = "; ".join(f"{what}, {' '.join(counts)} workers" for what, counts in by_change.items())
            reasons.setdefault(f"  nothing is said of: {which}: {why}", []).append(str(name))
    return [*text, *(f"{reason}; in {'; '.join(names)}" for reason, names in reasons.items())]


def draw(rows: Sequence[Mapping[str, Any]], options: Options) -> Figure:
    """The rate of one worker over worker counts: one panel per kind of change, of the first series; the others are in
    the table. It is no member of `figures/`: it needs the machine and predictions, and no tables only.

    Colourless filled markers are measured; lines and hollow markers are computed, with the interval of each.
    """
    table = pd.DataFrame(rows)
    table = table[(table["series"] == table["series"].iloc[0]) & table["why_not"].isna()]
    names = [*dict.fromkeys(table["what"])]
    table = table.astype(dict.fromkeys(RATES, float)).sort_values("workers", kind="stable")
    table[[*RATES]] = table[[*RATES]].div(table["workers"], axis=0)
    kinds = [kind for kind in KINDS if (table["change"] == kind).any()] or [AS_IT_IS]
    as_it_is = table[table["change"] == AS_IT_IS]
    by_panel = pd.concat([table[table["change"].isin([kind, AS_IT_IS])].assign(panel=kind) for kind in kinds])
    figure, panels = _style.panels(by_panel, ["panel"], options)
    figure.suptitle(f"{options.title}\n{table['series'].iloc[0]}", wrap=True)
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
    _style.labels(figure, _style.worker_label(options), f"{options.sample}/s of one worker (computed)")
    _style.legend(figure)
    return figure


def _base(axes: Any, rows: pd.DataFrame) -> None:
    """What was measured, and what is computed from it without any change."""
    measured, beyond = rows[rows["by"] == MEASURED], rows[rows["by"] != MEASURED]
    look = {"color": "black", "marker": "o", "zorder": 4}
    axes.plot(measured["workers"], measured["images_per_s"], **look, linestyle="none", label="measured: as it is")
    bars = measured[measured["images_per_s_low"].notna()]
    ends = (bars["images_per_s"] - bars["images_per_s_low"], bars["images_per_s_high"] - bars["images_per_s"])
    ends = (ends[0].clip(lower=0.0), ends[1].clip(lower=0.0))  # equal rates: an end may be beyond them by rounding
    axes.errorbar(bars["workers"], bars["images_per_s"], ends, fmt="none", ecolor="black", capsize=3)
    axes.fill_between(
        beyond["workers"], beyond["images_per_s_low"], beyond["images_per_s_high"], color="0.8", linewidth=0, zorder=1
    )
    hollow = {**look, "markerfacecolor": "white", "linestyle": ":"}
    axes.plot(beyond["workers"], beyond["images_per_s"], **hollow, label="computed: as it is")
