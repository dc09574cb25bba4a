"""One look for all figures: colours, markers and lines that also read in grey, axes, legends, files.

Importing this sets matplotlib's look for the process; members of `figures/` import it when they draw.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
import seaborn
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from ddlbench import registry
from ddlbench.figures._tables import Options
from ddlbench.study import SCHEDULES

matplotlib.rcParams.update(
    seaborn.axes_style("whitegrid")
    | seaborn.plotting_context("paper")
    | {"svg.hashsalt": "ddlbench", "pdf.fonttype": 42, "lines.linewidth": 1.5, "lines.markersize": 6}
)
# Paul Tol's "high-contrast" colours and more of his of other lightness: for colour-blind eyes and for grey print.
COLOURS = ("#004488", "#bb5566", "#ddaa33", "#117733", "#66ccee", "#222222")
SCHEDULE_COLOURS = ("#332288", "#cc6677", "#44aa99")
FILLS = ("full", "none", "right", "top", "left", "bottom")
MARKERS = ("o", "s", "D", "^", "v", "P")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), "-.", ":", (0, (3, 1, 1, 1, 1, 1)), (0, (8, 2)))
IDEAL = {"color": "0.55", "linewidth": 1.2, "linestyle": (0, (1, 1)), "zorder": 1}
RELATIONS = {"approx": "o", "above": "^", "below": "v"}
# How panel titles say a column's value.
TITLES = {
    "global_batch": "batch size {}",
    "batch_per_worker": "batch {} per worker",
    "workers": "workers {}",
    "loader_threads": "{} loader threads",
    "epochs": "{} epochs",
}


def member_style(framework: str, loader: str) -> dict[str, Any]:
    """How a line is drawn: the framework is colour and fill of the marker, the loader is marker and line style."""
    f, m = _place("frameworks", framework), _place("loaders", loader)
    return {
        "color": COLOURS[f % len(COLOURS)],
        "fillstyle": FILLS[f % len(FILLS)],
        "markerfacecoloralt": "white",
        "marker": MARKERS[m % len(MARKERS)],
        "linestyle": LINES[m % len(LINES)],
    }


def _place(room: str, name: str) -> int:
    """A member's place in its room; runs of members that the house no longer has come after them."""
    return [*registry.members(room), name].index(name)


def schedule_style(schedule: str) -> dict[str, Any]:
    """How a schedule's line is drawn."""
    place = [*SCHEDULES, schedule].index(schedule)
    return {"color": SCHEDULE_COLOURS[place], "marker": MARKERS[place], "linestyle": LINES[place]}


def panels(
    rows: pd.DataFrame, by: Sequence[str], options: Options, share_y: bool = True
) -> tuple[Figure, list]:
    """A figure with a panel for each combination of the columns `by` in `rows`: (figure, [(axes, its rows)]).

    No rows give one empty panel that says so.
    """
    groups = list(rows.groupby(list(by), dropna=False)) if by else [((), rows)]
    groups = groups or [((), rows)]
    across = min(len(groups), 3)
    down = math.ceil(len(groups) / across)
    size = (6.0, 4.4) if len(groups) == 1 else (1.0 + 2.7 * across, 1.3 + 2.3 * down)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(options.title)
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=share_y).ravel()
    for empty in grid[len(groups) :]:
        empty.remove()
    for place, (axes, (values, _)) in enumerate(zip(grid, groups, strict=False)):
        said = [TITLES.get(c, "{}").format(v) for c, v in zip(by, values, strict=True) if not pd.isna(v)]
        axes.set_title(", ".join(said))
        axes.tick_params(labelbottom=place + across >= len(groups))
    if rows.empty:
        grid[0].text(0.5, 0.5, "no finished runs", transform=grid[0].transAxes, ha="center", va="center")
    return figure, [(axes, group) for axes, (_, group) in zip(grid, groups, strict=False)]


def labels(figure: Figure, x: str, y: str) -> None:
    """Name the axes at the figure's left and lower edge."""
    for axes in figure.axes:
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel(y)
        if axes.xaxis.get_tick_params()["labelbottom"]:
            axes.set_xlabel(x)


def count_axis(figure: Figure, counts: Iterable[int]) -> None:
    """x by powers of two, with ticks exactly at the counts as plain numbers."""
    counts = sorted(set(counts))
    for axes in figure.axes:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(counts))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        if counts:
            axes.set_xlim(counts[0] / 1.3, counts[-1] * 1.3)
        if len(figure.axes) > 1 and len(counts) > 5:
            axes.tick_params(axis="x", labelrotation=60)


def worker_label(options: Options) -> str:
    """The name of the axis of worker counts."""
    return "GPUs" if options.device == "cuda" else f"workers ({options.device_name})"


def log_axis(axis: Axis) -> None:
    """A logarithmic axis with plain numbers at 1, 2, 5 of each decade, more where it spans less than one."""
    low, high = axis.get_view_interval()
    (axis.axes.set_yscale if axis.axis_name == "y" else axis.axes.set_xscale)("log")
    span = math.log10(high / low) if 0 < low < high else 1
    subs = (
        (1, 2, 5)
        if span > 1
        else (1, 1.5, 2, 3, 4, 5, 7)
        if span > 0.5
        else (1, *(n / 10 for n in range(12, 100, 2)))
    )
    axis.set_major_locator(LogLocator(subs=subs, numticks=20))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.set_minor_formatter(NullFormatter())


def whole_numbers(axis: Axis) -> None:
    """Ticks at whole numbers only."""
    axis.set_major_locator(MaxNLocator(integer=True))


def reference_points(axes: Axes, points: pd.DataFrame, x: str, note: str) -> None:
    """Published numbers as hollow black markers with the column `note` beside each: a limit points where it is open."""
    for (name, relation), group in points.groupby(["name", "relation"]):
        says = {"approx": "about", "above": "more than", "below": "less than"}[relation]
        axes.plot(
            group[x],
            group["value"],
            linestyle="none",
            marker=RELATIONS[relation],
            markerfacecolor="none",
            markeredgecolor="black",
            markeredgewidth=1.2,
            zorder=4,
            label=f"{name}: {says}",
        )
        for _, point in group.iterrows():
            text = str(point[note]).replace("|", ", ").replace("any", "")
            at = (point[x], point["value"])
            axes.annotate(text, at, (-5, 3), textcoords="offset points", ha="right", fontsize="small")


def legend(figure: Figure) -> None:
    """One legend for all panels, below them."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        across = 3 if figure.get_figwidth() < 9 else 5
        figure.legend(
            list(found.values()),
            list(found),
            loc="outside lower center",
            ncols=min(len(found), across),
            handlelength=3.5,
            frameon=False,
        )


def save(figure: Figure, prefix: Path) -> None:
    """`<prefix>.png`, `.svg` and `.pdf`, the same bytes for the same figure; aside, then renamed."""
    for suffix, metadata in ((".svg", {"Date": None}), (".pdf", {"CreationDate": None}), (".png", {})):
        aside = prefix.with_name(f".{prefix.name}{suffix}")
        figure.savefig(aside, format=suffix[1:], dpi=200, metadata=metadata)
        os.replace(aside, prefix.with_name(prefix.name + suffix))
