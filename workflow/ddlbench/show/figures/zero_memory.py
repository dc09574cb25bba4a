"""Weights, gradients and optimizer state on a worker by model and stage of ZeRO, on a logarithmic
axis; each optimizer has a panel of its own, because it keeps its own state. Measured values are of
the worker that needed most, dots single runs; the size of the gradients among them is computed,
unless a user's program says it. Computed values stand in panels of their own: these models were
counted on PyTorch's meta device (config/references/model-sizes.csv), and shared out over as many
workers by optimizer of the measured runs; their buffers are on every worker. The line at a mark is
the formula of Rajbhandari et al. 2020 (arXiv:1910.02054, section 5) with 4 bytes for each number,
because runs here keep them in fp32: (4+4+K)P without ZeRO, (4+4)P + KP/N, 4P + (4+K)P/N and
(4+4+K)P/N with stages 1 to 3, K = 4 for SGD with momentum, 8 for Adam.
"""

import json
from collections.abc import Iterator
from statistics import median
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.analysis.together import title, usable
from ddlbench.core.zero import held_bytes, optimizer_bytes
from ddlbench.show.figures import Options, Tables, _looks, _style

PARTS = ("parameters_bytes", "gradients_bytes", "optimizer_bytes")
TABLES = ("runs",)
PUBLISHED = ("parameters",)
APART = (
    5  # a model that was not measured is shown if it is so many times as large as the one before
)
GIB = 2**30
MEASURED, COMPUTED = "measured", "computed, not run"
PANELS = ("workers", "optimizer")  # where there are several
COLUMNS = [*PANELS, "values", "model", "framework", "held", "formula", "each"]


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per run: what its worker holds [bytes], the stage of ZeRO, and K of its
    optimizer [bytes]. SGD is named with whether it has momentum, because that decides on K.
    """
    runs = usable(tables["runs"])
    runs = runs[runs[list(PARTS)].notna().all(axis=1)]
    stages = [_stage(row["framework"], row["options"]) for row in runs.to_dict("records")]
    k = [
        optimizer_bytes(name, momentum)
        for name, momentum in zip(runs["optimizer"], runs["momentum"], strict=True)
    ]
    columns = ["run", "model", "image_size", "framework", *PANELS, *PARTS]
    names = [
        name if kept else f"{name} without momentum"
        for name, kept in zip(runs["optimizer"], k, strict=True)
    ]
    return runs[columns].assign(stage=stages, optimizer=names, optimizer_k=k)


def _stage(framework: str, options: str) -> int:
    given = json.loads(options)
    return (
        int(given.get("zero_stage", 0)) if given.get("framework", framework) == "deepspeed" else 0
    )


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw panels per number of workers and optimizer, of measured and of computed values; rows are
    models by size.
    """
    data = data.assign(held=data[list(PARTS)].sum(axis=1) / GIB)
    points = pd.DataFrame(
        [
            [*names, *point]
            for names, rows in data.groupby([*PANELS])
            for point in _points(rows, options)
        ],
        columns=COLUMNS,
    )
    points["values"] = pd.Categorical(points["values"], [MEASURED, COMPUTED])
    several = [name for name in PANELS if points[name].nunique() > 1]
    by = [] if points.empty else [*several, "values"]
    figure, panels = _style.panels(points, by, options, share_y=False, across=1)
    names = list(data.sort_values(["stage", "framework"])["framework"].unique())
    for axes, rows in panels:
        models = list(dict.fromkeys(rows["model"]))
        for name, mine in rows.groupby("framework"):
            place = mine["model"].map(models.index) + 0.16 * (
                names.index(str(name)) - (len(names) - 1) / 2
            )
            style = _looks.member_style(str(name), shown=options.frameworks)
            marker = _looks.nth_style(names.index(str(name)))["marker"]
            look = {"color": style["color"], "marker": marker, "markersize": 8}
            hollow = {"markerfacecolor": "white"} if (mine["values"] == COMPUTED).all() else {}
            axes.plot(mine["held"], place, linestyle="none", label=name, **look | hollow)
            axes.vlines(
                mine["formula"],
                place - 0.14,
                place + 0.14,
                color="black",
                linewidth=1.6,
                zorder=1.5,
            )
            for each, at in zip(mine["each"], place, strict=True):
                axes.plot(each, [at] * len(each), **_style.DOT | {"markersize": 2.6}, color="white")
        axes.set_yticks(range(len(models)), models)
        axes.set_ylim(len(models) - 0.4, -0.6)
        axes.grid(False, axis="y")
    _style.logarithmic(figure, "x")
    if panels:
        _style.set_heights(figure, [float(rows["model"].nunique()) for _, rows in panels], 0.7)
        axes = figure.axes[0]
        axes.plot(
            [],
            [],
            color="black",
            linewidth=1.6,
            linestyle="none",
            marker="|",
            label="formula of the ZeRO paper",
        )
    alike, held = ["framework", *several], {}
    for values, rows in points[points["values"] == MEASURED].groupby(alike):
        words = [title(column, value) for column, value in zip(alike, values, strict=True)]
        held[", ".join(words)] = median(rows["held"])
    result = f"Measured, medians: {_style.ranked(held, 'GiB')}." if held else ""
    return _style.finished(
        figure, "memory of a worker [GiB]", "model, millions of parameters", result
    )


def _points(rows: pd.DataFrame, options: Options) -> Iterator[list[Any]]:
    """Yield COLUMNS after PANELS of each model and framework: measured, or computed where nothing
    was. All rows are of one panel.
    """
    workers, k = int(rows["workers"].iloc[0]), float(rows["optimizer_k"].iloc[0])
    for model, parameters, buffers in _models(rows, options):
        for name, runs in rows.groupby("framework"):
            formula = held_bytes(parameters, int(runs["stage"].iloc[0]), workers, k) / GIB
            held = runs.loc[runs["model"] == model, "held"].tolist()
            middle = median(held) if held else formula + 4 * buffers / GIB
            shown = held if len(held) > 1 else []
            digits = 0 if parameters >= 1e8 else 1 if parameters >= 1e6 else 2
            label = f"{model}\n{parameters / 1e6:,.{digits}f} M"
            yield [
                MEASURED if held else COMPUTED,
                label,
                str(name),
                middle,
                formula,
                shown,
            ]


def _models(rows: pd.DataFrame, options: Options) -> list[tuple[str, float, float]]:
    """Return (model, parameters, buffers) by size: those that were measured, then larger ones that
    were only counted.

    Up to stage 2 a worker has all weights, under stage 3 its share of them: a model may fit under
    no other stage.
    """
    whole = rows["parameters_bytes"] / 4 * rows["workers"].where(rows["stage"] == 3, 1)
    lowest = rows.assign(whole=whole)[
        rows["stage"] == rows.groupby("model")["stage"].transform("min")
    ]
    medians = lowest.groupby("model")["whole"].median().sort_values(kind="stable")
    groups = [(str(model), float(parameters), 0.0) for model, parameters in medians.items()]
    reference = options.reference
    if reference is None or not groups:
        return groups
    largest = reference.groupby("model")[["parameters", "buffers"]].max().sort_values("parameters")
    buffers_of = dict(zip(largest.index, largest["buffers"], strict=True))
    groups = [
        (model, parameters, float(buffers_of.get(model, 0))) for model, parameters, _ in groups
    ]
    for model, parameters, buffers in largest.itertuples():
        if parameters >= APART * groups[-1][1] and model not in set(rows["model"]):
            groups.append((str(model), float(parameters), float(buffers)))
    return groups
