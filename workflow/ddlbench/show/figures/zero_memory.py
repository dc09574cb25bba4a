"""Weights, gradients and optimizer state on a worker by model and stage of ZeRO, on a logarithmic axis. Filled bars are
measured (the median over repeats, on the worker that needed most). Hatched bars are computed, not measured: these
models were counted on PyTorch's meta device (config/references/model-sizes.csv), and shared out over as many workers by
optimizer of the measured runs; their buffers are on every worker. The line at each bar is the formula of Rajbhandari et
al. 2020 (arXiv:1910.02054, section 5) with 4 bytes for each number, because runs here keep them in fp32: (4+4+K)P
without ZeRO, (4+4)P + KP/N, 4P + (4+K)P/N and (4+4+K)P/N with stages 1 to 3, K = 4 for SGD with momentum, 8 for Adam.
"""

import json
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ddlbench.analysis.together import finished
from ddlbench.analysis.zero import held_bytes, optimizer_bytes
from ddlbench.show.figures import Options, Tables, _bars, _style

PARTS = ("parameters_bytes", "gradients_bytes", "optimizer_bytes")
TABLES = ("runs",)
PUBLISHED = ("parameters",)
APART = 5  # a model that was not measured is shown if it is so many times as large as the one before
MIB = 2**20


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per run: what its worker holds [bytes], the stage of ZeRO, and K of its optimizer [bytes]."""
    runs = finished(tables["runs"])
    runs = runs[runs[list(PARTS)].notna().all(axis=1)]
    stages = [_stage(row["framework"], row["options"]) for row in runs.to_dict("records")]
    k = [optimizer_bytes(name, momentum) for name, momentum in zip(runs["optimizer"], runs["momentum"], strict=True)]
    columns = ["run", "model", "image_size", "framework", "workers", *PARTS]
    return runs[columns].assign(stage=stages, optimizer_k=k)


def _stage(framework: str, options: str) -> int:
    given = json.loads(options)
    return int(given.get("zero_stage", 0)) if given.get("framework", framework) == "deepspeed" else 0


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel per number of workers; groups of bars are models by size, bars of a group frameworks and stages."""
    data = data.assign(held=data[list(PARTS)].sum(axis=1) / MIB)
    figure, panels = _style.panels(data, ["workers"] if data["workers"].nunique() > 1 else [], options)
    names = list(data.sort_values(["stage", "framework"])["framework"].unique())
    for axes, rows in panels:
        workers, k = int(rows["workers"].iloc[0]), float(rows["optimizer_k"].iloc[0])
        groups = _models(rows, options)
        for place, (model, parameters, buffers) in enumerate(groups):
            for number, name in enumerate(names):
                runs = rows[rows["framework"] == name]
                if runs.empty:
                    continue
                formula = held_bytes(parameters, int(runs["stage"].iloc[0]), workers, k) / MIB
                held = runs.loc[runs["model"] == model, "held"]
                height = formula + 4 * buffers / MIB if held.empty else float(held.median())
                width = 0.8 / len(names)
                x = place - 0.4 + (number + 0.5) * width
                look: dict[str, Any] = {"facecolor": _bars.FILLS[number % len(_bars.FILLS)][0], "edgecolor": "black"}
                if held.empty:
                    colour = "black" if look["facecolor"] == "white" else look["facecolor"]  # white on white is nothing
                    look |= {"hatch": "////", "facecolor": "white", "edgecolor": colour}
                axes.bar(x, height, width, linewidth=0.8, **look)
                axes.hlines(formula, x - width / 2, x + width / 2, color="black", linewidth=1.6)
        axes.set_yscale("log")
        labels = [f"{model}\n{_millions(parameters)} M" for model, parameters, _ in groups]
        axes.set_xticks(range(len(groups)), labels, rotation=25, ha="right", fontsize="small")
        axes.grid(False, axis="x")
    _style.labels(figure, "model, millions of parameters", "memory of a worker [MiB]")
    if not panels:
        return figure
    fills = [_bars.FILLS[number % len(_bars.FILLS)][0] for number in range(len(names))]
    handles: list[Any] = [Patch(facecolor=c, edgecolor="black", label=n) for n, c in zip(names, fills, strict=True)]
    handles += [Patch(facecolor="white", edgecolor="0.3", hatch="////", label="computed, not run")]
    handles += [figure.axes[0].plot([], [], color="black", linewidth=1.6, label="formula of the ZeRO paper")[0]]
    down, across = _style.grid(len(panels))
    figure.set_size_inches(1.2 + 4.2 * across, 1.6 + 3.4 * down)
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _millions(parameters: float) -> str:
    digits = 0 if parameters >= 1e8 else 1 if parameters >= 1e6 else 2
    return f"{parameters / 1e6:,.{digits}f}"


def _models(rows: pd.DataFrame, options: Options) -> list[tuple[str, float, float]]:
    """(model, parameters, buffers) by size: those that were measured, then larger ones that were only counted.

    Up to stage 2 a worker has all weights, under stage 3 its share of them: a model may fit under no other.
    """
    whole = rows["parameters_bytes"] / 4 * rows["workers"].where(rows["stage"] == 3, 1)
    lowest = rows.assign(whole=whole)[rows["stage"] == rows.groupby("model")["stage"].transform("min")]
    medians = lowest.groupby("model")["whole"].median().sort_values(kind="stable")
    groups = [(str(model), float(parameters), 0.0) for model, parameters in medians.items()]
    reference = options.reference
    if reference is None or not groups:
        return groups
    largest = reference.groupby("model")[["parameters", "buffers"]].max().sort_values("parameters")
    buffers_of = dict(zip(largest.index, largest["buffers"], strict=True))
    groups = [(model, parameters, float(buffers_of.get(model, 0))) for model, parameters, _ in groups]
    for model, parameters, buffers in largest.itertuples():
        if parameters >= APART * groups[-1][1] and model not in set(rows["model"]):
            groups.append((str(model), float(parameters), float(buffers)))
    return groups
