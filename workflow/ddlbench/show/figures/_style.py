"""One look for all figures: colours, markers and lines that also read in grey, axes, legends, files.

Importing this sets matplotlib's look for the process; members of `figures/` import it when they draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation, Transform

from ddlbench.analysis import together
from ddlbench.core import registry
from ddlbench.settings.study import SCHEDULES
from ddlbench.show.figures import Options, _hover

# White with a grey grid: seaborn's style as matplotlib ships it, and sizes that suit a column of a paper [points].
matplotlib.rcParams.update(
    matplotlib.style.library["seaborn-v0_8-whitegrid"]
    | dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize", "legend.title_fontsize"), 9.6)
    | dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 8.8)
    | {"font.sans-serif": ["Arial", "DejaVu Sans", "Liberation Sans", "Bitstream Vera Sans", "sans-serif"]}
    | {"legend.frameon": True, "grid.linewidth": 0.8, "lines.linewidth": 1.5, "lines.markersize": 6}
    | {"patch.edgecolor": "w", "patch.force_edgecolor": True, "patch.linewidth": 0.8}
    | {"xtick.bottom": False, "ytick.left": False, "xtick.major.size": 4.8, "ytick.major.size": 4.8}
    | {"xtick.minor.size": 3.2, "ytick.minor.size": 3.2}
    | {"svg.hashsalt": "ddlbench", "pdf.fonttype": 42}
)
# Colours after Paul Tol for colour-blind eyes; the first three of each are dark, middling and light in grey print.
COLOURS = ("#004488", "#bb5566", "#ddaa33", "#117733", "#66ccee", "#222222")
OTHER_COLOURS = ("#332288", "#aa4499", "#66bbaa", "#882255", "#88ccee", "#999933")
FILLS = ("full", "none", "right", "top", "left", "bottom")
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*", "<", ">")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), "-.", ":", (0, (3, 1, 1, 1, 1, 1)), (0, (8, 2)))
IDEAL: dict[str, Any] = {"color": "0.55", "linewidth": 1.2, "linestyle": (0, (1, 1)), "zorder": 1}
RELATIONS = {"approx": ("o", "about"), "above": ("^", "more than"), "below": ("v", "less than")}
REFERENCE: dict[str, Any] = {
    "linestyle": "none",
    "markersize": 7,
    "markerfacecolor": "none",
    "markeredgecolor": "black",
    "markeredgewidth": 1.2,
    "zorder": 4,
}
DEVICES = {"cuda": "GPUs", "accelerator": "accelerators"}


def member_style(framework: str, loader: str, shown: Iterable[str] = ()) -> dict[str, Any]:
    """How a line is drawn: the framework is colour and fill of the marker, the loader is marker and line style.

    `shown`: all frameworks of the study, of which the variants come after the members of the house.
    """
    f, m = _place("frameworks", framework, shown), _place("loaders", loader)
    return {
        "color": COLOURS[f % len(COLOURS)],
        "fillstyle": FILLS[(f + f // len(COLOURS)) % len(FILLS)],  # the second time round, others go with each colour
        "markerfacecoloralt": "white",
        "marker": MARKERS[m % len(MARKERS)],
        "linestyle": LINES[m % len(LINES)],
        **_nested(f),
    }


def _place(room: str, name: str, shown: Iterable[str] = ()) -> int:
    """A member's place in its room; variants, and members that the house no longer has, come after them by name."""
    members = registry.members(room)
    return [*members, *sorted({*shown, name} - {*members})].index(name)


def schedule_style(schedule: str) -> dict[str, Any]:
    """Says how a schedule's line is drawn."""
    return nth_style([*SCHEDULES, schedule].index(schedule))


def nth_style(n: int) -> dict[str, Any]:
    """How the n-th line is drawn, counted from 0, where lines are neither frameworks nor loaders."""
    return {
        "color": OTHER_COLOURS[n % len(OTHER_COLOURS)],
        "marker": MARKERS[n % len(MARKERS)],
        "linestyle": LINES[n % len(LINES)],
        **_nested(n),
    }


def _nested(n: int) -> dict[str, float]:
    """Each line is thinner than the one below it, so that lines that lie on one another are all seen."""
    width = max(1.2, 2.4 - 0.6 * n)
    return {"linewidth": width, "markersize": 4 + 1.8 * width, "zorder": 2 + n / 10}


def grid(panels: int) -> tuple[int, int]:
    """Lays out panels: (rows, columns)."""
    across = min(panels, 3)
    return math.ceil(panels / across), across


def panels(
    rows: pd.DataFrame, by: Sequence[str], options: Options, share_y: bool = True, share_x: bool = True
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """A figure with one panel for each combination of the columns `by` in `rows`: (figure, [(axes, its rows)]).

    No rows give an empty panel that says so, and an empty list.
    """
    groups: list[tuple[Any, pd.DataFrame]] = list(rows.groupby(list(by), dropna=False)) if by else []
    groups = groups or [((), rows)]
    down, across = grid(len(groups))
    size = (6.0, 4.4) if len(groups) == 1 else (1.0 + 2.7 * across, 1.3 + 2.3 * down)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(options.title, wrap=True)
    places = figure.subplots(down, across, squeeze=False, sharex=share_x, sharey=share_y).ravel()
    for empty in places[len(groups) :]:
        empty.remove()
    for place, (axes, (values, _)) in enumerate(zip(places, groups, strict=False)):
        said = [together.title(c, v) for c, v in zip(by, values, strict=True) if not pd.isna(v)]
        axes.set_title(", ".join(said))
        axes.tick_params(labelbottom=place + across >= len(groups) or not share_x)
    if rows.empty:
        places[0].text(0.5, 0.5, "no finished runs", transform=places[0].transAxes, ha="center", va="center")
        places[0].set(xticks=[], yticks=[])
        return figure, []
    return figure, [(axes, group) for axes, (_, group) in zip(places, groups, strict=False)]


def labels(figure: Figure, x: str, y: str) -> None:
    """Name the axes at the figure's left and lower edge; y once for several rows of panels, which may be low."""
    first = [axes for axes in figure.axes if (place := axes.get_subplotspec()) is not None and place.is_first_col()]
    if len(first) > 1:
        figure.supylabel(y, fontsize=matplotlib.rcParams["axes.labelsize"])
    for axes in figure.axes:
        if axes in first[:1] and len(first) == 1:
            axes.set_ylabel(y)
        if axes.xaxis.get_tick_params()["labelbottom"]:
            axes.set_xlabel(x)
    figure.align_ylabels()


def count_axis(figure: Figure, counts: Iterable[int]) -> None:
    """x by powers of two, with ticks exactly at the counts as plain numbers."""
    counts = sorted(set(counts))
    for axes in figure.axes:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(counts))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
        if counts:
            axes.set_xlim(counts[0] / 1.3, counts[-1] * 1.3)
        if len(figure.axes) > 1 and len(counts) > 5:
            axes.tick_params(axis="x", labelrotation=60)


def at_values(figure: Figure, values: Iterable[float]) -> None:
    """x logarithmic, with ticks exactly at the values as plain numbers."""
    values = sorted(set(values))
    for axes in figure.axes:
        if values:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(FixedLocator(values))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            axes.set_xlim(values[0] / 1.5, values[-1] * 1.5)


def worker_label(options: Options) -> str:
    """The name of the axis of worker counts."""
    return DEVICES.get(options.device, f"workers ({options.device_name})")


def log_y(figure: Figure) -> None:
    """y logarithmic with plain numbers: at 1, 2, 5 of each decade, or evenly where it spans less than one."""
    for axes in figure.axes:
        axes.set_yscale("log")
    for axes in figure.axes:  # only now all limits, which panels may share, are known
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high > 10 * low else MaxNLocator(6))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axes.yaxis.set_minor_locator(NullLocator())


def whole_numbers(axis: Axis) -> None:
    """Puts ticks at whole numbers only."""
    axis.set_major_locator(MaxNLocator(integer=True))


def side_by_side(axes: Axes, lines: int) -> Iterator[Transform]:
    """Where each of so many lines is drawn: at its values, moved a little aside so that no line hides another."""
    figure = axes.get_figure(root=True)
    assert figure is not None  # axes that are drawn have one
    step = min(5.0, 20.0 / max(1, lines - 1))  # points
    for place in range(lines):
        aside = ScaledTranslation((place - (lines - 1) / 2) * step / 72, 0, figure.dpi_scale_trans)
        yield axes.transData + aside


def bars(
    axes: Axes,
    x: pd.Series[Any] | pd.Index[Any],
    middle: pd.Series[Any],
    low: pd.Series[Any],
    high: pd.Series[Any],
    style: dict[str, Any],
) -> None:
    """A bar with caps from `low` to `high` at each point that has them."""
    known = low.notna() & high.notna()
    if known.any():
        ends = ((middle - low)[known].clip(lower=0.0), (high - middle)[known].clip(lower=0.0))
        place = style.get("transform", axes.transData)
        axes.errorbar(x[known], middle[known], ends, fmt="none", ecolor=style["color"], capsize=3, transform=place)
        _make_room(axes, x[known], low[known], high[known])


def spread(
    axes: Axes,
    x: pd.Series[Any],
    middle: pd.Series[Any],
    low: pd.Series[Any],
    high: pd.Series[Any],
    style: dict[str, Any],
) -> None:
    """A dotted bar without caps from `low` to `high` at each point of a single run: not the look of an interval."""
    known = low.notna() & high.notna()
    if known.any():
        look = {"linestyles": ":", "linewidth": 1.2, "transform": style.get("transform", axes.transData)}
        axes.vlines(x[known], low[known], high[known], colors=style["color"], **look)
        _make_room(axes, x[known], low[known], high[known])


def _make_room(axes: Axes, x: pd.Series[Any] | pd.Index[Any], low: pd.Series[Any], high: pd.Series[Any]) -> None:
    """Let the axes reach as far as the bars: matplotlib does not count what is drawn beside its values."""
    axes.update_datalim([*zip(x, low, strict=True), *zip(x, high, strict=True)])
    axes.autoscale_view()


INTERVAL, SPREAD = "95 % interval", "5 % to 95 % of its steps"


def say_bars(axes: Axes, repeats: Iterable[int], bar: str = INTERVAL, single: str = "") -> None:
    """Add to the legend of how many repeats the points are, and what bars are; `single`: of points of a single run."""
    counts = sorted({int(n) for n in repeats})
    several = [n for n in counts if n > 1]
    if several:
        n = " to ".join(map(str, sorted({several[0], several[-1]})))
        axes.plot([], [], color="black", linewidth=1, marker="|", label=f"n = {n}: {bar}")
    if counts[:1] == [1]:
        look = ":" if single else "none"
        axes.plot([], [], color="black", linewidth=1.2, linestyle=look, label=f"n = 1: {single or 'one run'}")


def reference_points(axes: Axes, points: pd.DataFrame, x: str) -> None:
    """Published numbers as hollow black markers, their notes beside them; of a limit, a triangle to its open side."""
    for (name, relation), group in points.groupby(["name", "relation"]):
        marker, says = RELATIONS[str(relation)]
        axes.plot(
            group[x],
            group["value"],
            label=f"{name}: {says}",
            **REFERENCE | {"marker": marker},
        )
    for at, group in points.sort_values("value").groupby(x):
        below, side = float("-inf"), "right"
        for value, note in zip(group["value"], group["note"], strict=True):
            close = value - below < 0.08 * value  # notes would lie on one another: the other side
            below, side = value, "left" if close and side == "right" else "right"
            axes.annotate(
                note,
                (at, value),
                (-6 if side == "right" else 6, 0),
                textcoords="offset points",
                ha=side,
                va="center",
                fontsize="small",
                path_effects=[withStroke(linewidth=2, foreground="white")],
                zorder=3.9,
            )


def legend(figure: Figure) -> None:
    """One legend for all panels, below them."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    for last in [label for label in entries if label == "ideal" or ": " in label]:
        entries[last] = entries.pop(last)  # ours first, then what bars are, the ideal and what others published
    if entries:
        across = max(1, int(figure.get_figwidth() / (0.8 + 0.06 * max(map(len, entries)))))  # inches, about
        figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside lower center",
            ncols=min(len(entries), across),
            handlelength=3.5,
            frameon=False,
        )


def stamp(figure: Figure, rules: Sequence[str]) -> None:
    """A mark across the figure that names the rules of the audit which its runs break (docs/audit.md)."""
    shown = rules if len(rules) < 5 else [*rules[:3], f"and {len(rules) - 3} more rules"]
    figure.text(
        0.5,
        0.52,
        "\n".join(["unfair comparison", *shown]),
        rotation=15,
        ha="center",
        va="center",
        fontsize=12,
        fontweight="bold",
        color="#bb0000",
        zorder=100,
        bbox={"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": "#bb0000", "linewidth": 2, "alpha": 0.85},
    )


def save(figure: Figure, prefix: Path) -> None:
    """`<prefix>.png`, `.svg` and `.pdf`, the same bytes for the same figure; aside, then renamed."""
    marks = _hover.name(figure)
    for suffix, metadata in ((".svg", {"Date": None}), (".pdf", {"CreationDate": None}), (".png", {})):
        aside = prefix.with_name(f".{prefix.name}{suffix}")
        figure.savefig(aside, format=suffix[1:], dpi=200, metadata=metadata)
        if suffix == ".svg":
            aside.write_text(_hover.titled(aside.read_text(encoding="utf-8"), marks), encoding="utf-8")
        aside.replace(prefix.with_name(prefix.name + suffix))
