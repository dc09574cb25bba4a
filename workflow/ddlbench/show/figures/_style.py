"""One look for all figures: colours, markers and lines that also read in grey, axes, legends, files.

Importing this sets matplotlib's look for the process; members of `figures/` import it when they draw.
"""

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
from ddlbench.core.plural import worker
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
REFERENCE: dict[str, Any] = {"linestyle": "none", "markersize": 7, "markerfacecolor": "none", "zorder": 4}
REFERENCE |= {"markeredgecolor": "black", "markeredgewidth": 1.2}

Values = Any  # a column, or the index of a table
Style = dict[str, Any]


def member_style(framework: str, loader: str, shown: Iterable[str] = ()) -> Style:
    """How a line is drawn: the framework is colour and fill of the marker, the loader is marker and line style.

    `shown`: all frameworks of the study, of which the variants come after the members of the house.
    """
    f, m = _place("frameworks", framework, shown), _place("loaders", loader)
    return {
        "color": COLOURS[f % len(COLOURS)],
        "fillstyle": FILLS[(f + f // len(COLOURS)) % len(FILLS)],  # the second time round, others go with each colour
        "markerfacecoloralt": "white",
        **_nth(m),
        **_nested(f),
    }


def _place(room: str, name: str, shown: Iterable[str] = ()) -> int:
    """A member's place in its room; variants, and members that the house no longer has, come after them by name."""
    members = registry.members(room)
    return [*members, *sorted({*shown, name} - {*members})].index(name)


def schedule_style(schedule: str) -> Style:
    """Says how a schedule's line is drawn."""
    return nth_style([*SCHEDULES, schedule].index(schedule))


def nth_style(n: int) -> Style:
    """How the n-th line is drawn, counted from 0, where lines are neither frameworks nor loaders."""
    return {"color": OTHER_COLOURS[n % len(OTHER_COLOURS)], **_nth(n), **_nested(n)}


def _nth(n: int) -> Style:
    return {"marker": MARKERS[n % len(MARKERS)], "linestyle": LINES[n % len(LINES)]}


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
        titles = [together.title(c, v) for c, v in zip(by, values, strict=True) if not pd.isna(v)]
        axes.set_title(", ".join(titles))
        axes.tick_params(labelbottom=place + across >= len(groups) or not share_x)
    if rows.empty:
        nothing(places[0])
        return figure, []
    return figure, [(axes, group) for axes, (_, group) in zip(places, groups, strict=False)]


def nothing(axes: Axes) -> None:
    """A panel that says that there is nothing to show."""
    axes.text(0.5, 0.5, "no finished runs", transform=axes.transAxes, ha="center", va="center")
    axes.set(xticks=[], yticks=[])


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
        _ticks_at(axes, counts, 1.3, base=2)
        if len(figure.axes) > 1 and len(counts) > 5:
            axes.tick_params(axis="x", labelrotation=60)


def at_values(figure: Figure, values: Iterable[float]) -> None:
    """x logarithmic, with ticks exactly at the values as plain numbers."""
    values = sorted(set(values))
    for axes in figure.axes if values else ():
        _ticks_at(axes, values, 1.5, base=10)


def _ticks_at(axes: Axes, values: Sequence[float], beyond: float, base: int) -> None:
    """A logarithmic x axis that reaches so many times beyond the values."""
    axes.set_xscale("log", base=base)
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}" if base == 2 else f"{value:,.0f}"))
    if values:
        axes.set_xlim(values[0] / beyond, values[-1] * beyond)


def worker_label(options: Options) -> str:
    """The name of the axis of worker counts."""
    return f"workers ({options.device_name})" if options.device == "cpu" else f"{worker(options.device)}s"


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


def bars(axes: Axes, x: Values, middle: Values, low: Values, high: Values, style: Style, steps: bool = False) -> None:
    """A bar with caps from `low` to `high` at each point that has them; a dotted one without caps where it is not an
    interval, but the spread of a single run's `steps`."""
    there = low.notna() & high.notna()
    if not there.any():
        return
    x, middle, low, high = (values[there] for values in (x, middle, low, high))
    place = style.get("transform", axes.transData)
    if steps:
        axes.vlines(x, low, high, colors=style["color"], linestyles=":", linewidth=1.2, transform=place)
    else:
        ends = ((middle - low).clip(lower=0.0), (high - middle).clip(lower=0.0))
        axes.errorbar(x, middle, ends, fmt="none", ecolor=style["color"], capsize=3, transform=place)
    # matplotlib does not count what is drawn beside its values.
    axes.update_datalim([*zip(x, low, strict=True), *zip(x, high, strict=True)])
    axes.autoscale_view()


def medians(axes: Axes, points: pd.DataFrame, x: str, y: str, label: str, style: dict[str, Any]) -> None:
    """A line through the medians of repeats (column `run`), and a band from the lowest to the highest of them."""
    ends = points.groupby(x)[y].agg(["median", "min", "max"])
    axes.plot(ends.index, ends["median"], label=label, markevery=max(1, len(ends) // 10), **style)
    if points["run"].nunique() > 1:
        axes.fill_between(ends.index, ends["min"], ends["max"], color=style["color"], alpha=0.2, linewidth=0)


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
        axes.plot(group[x], group["value"], label=f"{name}: {says}", **REFERENCE | {"marker": marker})
    for at, group in points.sort_values("value").groupby(x):
        below, side = float("-inf"), "right"
        for value, note in zip(group["value"], group["note"], strict=True):
            close = value - below < 0.08 * value  # notes would lie on one another: the other side
            below, side = value, "left" if close and side == "right" else "right"
            look = {"fontsize": "small", "path_effects": [withStroke(linewidth=2, foreground="white")], "zorder": 3.9}
            beside(axes, note, at, value, aside=-6 if side == "right" else 6, ha=side, **look)


def beside(axes: Axes, text: str, x: Any, y: Any, aside: float = 4, **look: Any) -> None:
    """A text so many points beside a place."""
    axes.annotate(text, (x, y), (aside, 0), textcoords="offset points", va="center", **look)


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
        look: dict[str, Any] = {"loc": "outside lower center", "ncols": min(len(entries), across), "handlelength": 3.5}
        figure.legend(list(entries.values()), list(entries), frameon=False, **look)


def finished(figure: Figure, x: str, y: str) -> Figure:
    """The figure with the names of its axes, and its legend."""
    labels(figure, x, y)
    legend(figure)
    return figure


def stamp(figure: Figure, rules: Sequence[str]) -> None:
    """A mark across the figure that names the rules of the audit which its runs break (docs/audit.md)."""
    shown = rules if len(rules) < 5 else [*rules[:3], f"and {len(rules) - 3} more rules"]
    box = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": "#bb0000", "linewidth": 2, "alpha": 0.85}
    look: dict[str, Any] = {"fontsize": 12, "fontweight": "bold", "color": "#bb0000", "zorder": 100, "bbox": box}
    figure.text(0.5, 0.52, "\n".join(["unfair comparison", *shown]), rotation=15, ha="center", va="center", **look)


def save(figure: Figure, prefix: Path) -> None:
    """`<prefix>.png`, `.svg` and `.pdf`, the same bytes for the same figure; aside, then renamed."""
    marks = _hover.name(figure)
    for suffix, metadata in ((".svg", {"Date": None}), (".pdf", {"CreationDate": None}), (".png", {})):
        aside = prefix.with_name(f".{prefix.name}{suffix}")
        figure.savefig(aside, format=suffix[1:], dpi=200, metadata=metadata)
        if suffix == ".svg":
            aside.write_text(_hover.titled(aside.read_text(encoding="utf-8"), marks), encoding="utf-8")
        aside.replace(prefix.with_name(prefix.name + suffix))
