"""What the maps share: a cell per setting (model, and data set with recipe), with what a framework changes there."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter

from ddlbench.analysis import together
from ddlbench.analysis.statistics import CANNOT_TELL, Ratio, at_once
from ddlbench.core.roles import AXIS, SETTING, SIZE
from ddlbench.show.figures import Options, Tables, _style
from ddlbench.show.figures._tables import distinguishing

BASE = "ddp"  # what the others are compared with; where it is not shown, the first by name
CELL = ("model", "image_size", "dataset", "recipes")
OTHERS = together.settings(  # panels, where they tell cells apart
    *(SETTING, AXIS, SIZE),
    without=("machine", "dataset", "model", "recipe", "framework", "options"),
    first=("workers", "loader", "form", "schedule", "of_epochs"),
)
COLUMNS = (*CELL, "framework", "base", *OTHERS, "flops_per_image", "repeats", "value", "low", "high", "told")
COLOURS = "RdBu"  # white where nothing changes; numbers and ends of the scale tell the sides apart in grey
MISSING = "xxxx"
LABEL = "model, operations per image"
CELL_WIDTH = 0.9  # inches: an interval in letters of 7.2 points
Compare = Callable[[Mapping[int, float], Mapping[int, float]], Ratio]


def data(tables: Tables, column: str, compare: Compare, same: float = 1.0) -> pd.DataFrame:
    """One row per setting and framework other than the base, in COLUMNS.

    `compare` is given a column of runs by repeat, of the framework and of the base, and gives `same` where both are
    equal. `told` is whether the two can be told apart, all rows judged at once. A recipe whose name ends with the size
    of its pictures is the one without that ending (`recipes`).
    """
    runs = together.finished(tables["runs"])
    runs = runs[runs[column].notna()]
    names, sizes = runs["recipe"].astype(str), runs["image_size"].astype(str)
    runs = runs.assign(recipes=[n.removesuffix(f"-{s}") for n, s in zip(names, sizes, strict=True)])
    frameworks = sorted(set(runs["framework"]))
    base = BASE if BASE in frameworks else next(iter(frameworks), BASE)
    rows: list[dict[str, Any]] = []
    apart: list[Ratio] = []
    for settings, alike in runs.groupby([*CELL, *OTHERS], dropna=False):
        sides = {
            str(name): dict(zip(side["repeat"].tolist(), side[column].astype(float).tolist(), strict=True))
            for name, side in alike.groupby("framework")
        }
        shared = dict(zip((*CELL, *OTHERS), settings, strict=True))
        shared |= {"base": base, "flops_per_image": float(alike["flops_per_image"].median())}
        for name in frameworks:
            if name == base or name not in sides or base not in sides:
                continue
            rows.append(shared | {"framework": name})
            apart.append(compare(sides[name], sides[base]))
    for row, ratio in zip(rows, at_once(apart, same=same), strict=True):
        row |= {"repeats": ratio.n, "value": ratio.middle, "low": ratio.low, "high": ratio.high}
        row |= {"told": ratio.verdict != CANNOT_TELL}
    return pd.DataFrame(rows, columns=list(COLUMNS))


def draw(
    table: pd.DataFrame,
    options: Options,
    scale: Normalize,
    number: str,
    label: str,
    what: str,
    notes: Sequence[str] = (),
) -> _style.Picture:
    """One panel per framework and worker count; a row of cells per model, those with the fewest operations above.

    `scale` is that of the colours; `number` is how a cell's value is written. `what` names the value in the caption, of
    which `notes` are the last sentences.
    """
    by = distinguishing(table, list(CELL), ("framework", *OTHERS))
    figure, panels = _style.panels(table, by, options)
    _style.labels(figure, "data set, recipe" if table["dataset"].nunique() > 1 else "recipe", LABEL)
    if not panels:
        return figure
    models = table.groupby("model")["flops_per_image"].median().sort_values(kind="stable")
    columns = sorted({*zip(table["dataset"], table["recipes"], strict=True)})
    several = len({dataset for dataset, _ in columns}) > 1
    down, across = _style.grid(len(panels))
    width, height = 3.4 + across * (0.3 + CELL_WIDTH * len(columns)), 2.7 + down * (0.6 + max(1.9, 0.44 * len(models)))
    figure.set_size_inches(max(_style.WIDTH, width), max(4.0, height))
    for axes, rows in panels:
        _cells(axes, rows, list(models.index), columns, scale, number)
        names = ["\n".join(column if several else column[1:]) for column in columns]
        axes.set_xticks(range(len(columns)), names, rotation=60, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(models)), [f"{name}, {_operations(flops)}" for name, flops in models.items()])
        axes.grid(False)
    bar = figure.colorbar(ScalarMappable(scale, COLOURS), ax=[axes for axes, _ in panels], shrink=0.8, pad=0.02)
    bar.set_label(label)
    if isinstance(scale, LogNorm):
        least, most = bar.ax.get_ylim()
        bar.set_ticks([2.0**n for n in range(-10, 11) if least <= 2.0**n <= most])
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    bar.minorticks_off()
    n = sorted({int(n) for n in table["repeats"]})
    small = f"small: 95 % interval, n = {n[0]}" + (f" to {n[-1]}" if n[1:] else "")
    words = [small if n[-1] > 1 else "n = 1: one pair of runs", "bold: told apart, all cells judged at once"]
    handles = [Patch(facecolor="white", edgecolor="0.5", hatch=MISSING, label="not run, or failed")]
    handles += [Patch(alpha=0, label=word) for word in words]
    figure.legend(handles=handles, loc="outside lower left", frameon=False, handlelength=1.6)
    told = int(table["told"].sum())
    names = [
        ", ".join(map(str, row))
        for row in table[["framework", "model", *(["dataset"] * several), "recipes"]].to_numpy()
    ]
    values = dict(zip(names, table["value"], strict=True))
    figure.result = f"{what}, middle values: {_style.ranked(values, '')}; {told} of {len(table)} differ by a verdict."
    figure.note(*notes)
    return figure


def _cells(
    axes: Axes,
    rows: pd.DataFrame,
    models: Sequence[str],
    columns: Sequence[tuple[str, str]],
    scale: Normalize,
    number: str,
) -> None:
    """The cells of a panel, each with its number; what is missing is hatched."""
    cell_of = {(row["model"], row["dataset"], row["recipes"]): row for row in rows.to_dict("records")}
    cells = [[cell_of.get((model, *column)) for column in columns] for model in models]
    values = np.array([[np.nan if cell is None else cell["value"] for cell in line] for line in cells], dtype=float)
    axes.imshow(np.ma.masked_invalid(values), cmap=COLOURS, norm=scale, aspect="auto")
    for (y, line), (x, _) in product(enumerate(cells), enumerate(columns)):
        cell = line[x]
        if cell is None:
            corner = (x - 0.5, y - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, facecolor="white", edgecolor="0.5", hatch=MISSING, linewidth=0))
            continue
        red, green, blue, _ = matplotlib.colormaps[COLOURS](scale(cell["value"]))
        look: dict[str, Any] = {"ha": "center", "va": "center"}
        look["color"] = "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"
        several = not pd.isna(cell["low"])
        weight = "bold" if cell["told"] else "normal"
        axes.text(x, y - 0.18 * several, number.format(cell["value"]), weight=weight, fontsize=_style.SMALL, **look)
        if several:
            ends = f"{number.format(cell['low'])} to {number.format(cell['high'])}"
            axes.text(x, y + 0.24, ends, fontsize=7.2, **look)


def _operations(flops: float) -> str:
    """Operations of one picture, forward and backward, as people write them."""
    if np.isnan(flops):
        return "?"
    power = min(4, max(0, int(np.log10(max(flops, 1.0)) // 3)))
    return f"{flops / 1000**power:.3g}{' kMGT'[power].strip()}"
