"""One look for all figures: colours, markers and lines that also read in grey, axes, legends,
files.

Importing this sets matplotlib's look for the process; members of `figures/` import it when they
draw.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib
import matplotlib.style
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis, YAxis
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpecBase
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.ticker import (
    FixedLocator,
    Locator,
    LogLocator,
    MaxNLocator,
    NullLocator,
    StrMethodFormatter,
)
from matplotlib.transforms import Bbox, ScaledTranslation, Transform

from ddlbench.analysis import together
from ddlbench.core.files import aside
from ddlbench.core.formatting import listed, rounded, worker
from ddlbench.show.figures import Options, _labels
from ddlbench.show.figures._looks import Style

NOTHING = "no finished run has these numbers"  # of a panel without points
# White with a grey grid: seaborn's style as matplotlib ships it. A figure is at most WIDTH wide
# [inches], no letter is smaller than SMALL [points], so that a phone of 390 pixels shows it whole,
# with letters of 7 points.
WIDTH, SMALL = 4.9, 9.2
SIGNATURE = 0.2  # inches, of the line below a picture that says what it is of
matplotlib.rcParams.update(
    matplotlib.style.library["seaborn-v0_8-whitegrid"]
    | dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize", "legend.title_fontsize"), 9.6)
    | dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), SMALL)
    | {
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
        "figure.titlesize": 10.5,
    }
    | {"legend.frameon": True, "grid.linewidth": 0.8, "lines.linewidth": 1.5, "lines.markersize": 6}
    | {
        "patch.edgecolor": "w",
        "patch.force_edgecolor": True,
        "patch.linewidth": 0.8,
        "hatch.linewidth": 0.8,
    }
    | {"xtick.bottom": False, "ytick.left": False}
    | {"svg.hashsalt": "ddlbench", "svg.fonttype": "none", "pdf.fonttype": 42}
)
DOT: dict[str, Any] = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 3.6,
    "markeredgecolor": "black",
    "zorder": 3.5,
}
BEYOND = 1.5  # times the outermost point: so far an interval may stretch an axis
MOST_DOTS = 300  # of a series, that are drawn as shapes
MOST_NAMED = 4  # values in the first sentence of a caption
IDEAL: dict[str, Any] = {"color": "0.55", "linewidth": 1.2, "linestyle": (0, (1, 1)), "zorder": 1}
ONE: dict[str, Any] = {
    "color": "0.3",
    "linewidth": 1.2,
    "zorder": 1.5,
}  # where a ratio says: as before
RELATIONS = {"approx": ("o", "about"), "above": ("^", "more than"), "below": ("v", "less than")}
REFERENCE: dict[str, Any] = {
    "linestyle": "none",
    "markersize": 7,
    "markerfacecolor": "none",
    "zorder": 4,
}
REFERENCE |= {"markeredgecolor": "black", "markeredgewidth": 1.2}

Values = Any  # a column, or the index of a table


class Drawing(Figure):
    """A figure with its caption: what these runs say, and how to read it. It goes into the files
    (`save`).
    """

    result = ""
    instead = ""  # of the words of its kind on how to read it
    notes: tuple[str, ...] = ()
    published: tuple[
        Annotation, ...
    ] = ()  # labels of published points, which `separate_labels` moves

    def note(self, *sentences: str) -> None:
        """Add sentences about how to read it, each once."""
        self.notes = (*dict.fromkeys([*self.notes, *sentences]),)


def panels(
    rows: pd.DataFrame,
    by: Sequence[str],
    options: Options,
    share_y: bool = True,
    share_x: bool = True,
    across: int = 2,
) -> tuple[Drawing, list[tuple[Axes, pd.DataFrame]]]:
    """Return a figure with one panel for each combination of the columns `by` in `rows`: (figure,
    [(axes, its rows)]).

    Without rows, the panel is empty and has a text for this, and the list is empty.
    """
    groups: list[tuple[Any, pd.DataFrame]] = (
        list(rows.groupby(list(by), dropna=False)) if by else []
    )
    groups = groups or [((), rows)]
    across = min(len(groups), across)
    down = math.ceil(len(groups) / across)
    figure = Drawing(
        figsize=(WIDTH, 4.0 if len(groups) == 1 else 1.3 + 1.9 * down), layout="constrained"
    )
    figure.suptitle(options.title, wrap=True)
    places = figure.subplots(down, across, squeeze=False, sharex=share_x, sharey=share_y).ravel()
    for empty in places[len(groups) :]:
        empty.remove()
    for place, (axes, (values, _)) in enumerate(zip(places, groups, strict=False)):
        titles = [together.title(c, v) for c, v in zip(by, values, strict=True) if not pd.isna(v)]
        axes.set_title(", ".join(titles), wrap=across == 1)
        axes.tick_params(labelbottom=place + across >= len(groups) or not share_x)
    if rows.empty:
        write_empty(places[0])
        return figure, []
    return figure, [(axes, group) for axes, (_, group) in zip(places, groups, strict=False)]


def write_empty(axes: Axes) -> None:
    """Write into a panel that there is nothing to show."""
    axes.text(0.5, 0.5, NOTHING, transform=axes.transAxes, ha="center", va="center")
    axes.set(xticks=[], yticks=[])


def labels(figure: Figure, x: str, y: str) -> None:
    """Name the axes at the figure's left and lower edge; y once for several rows of panels, which
    may be low, x on lines as wide as panels that stand side by side.
    """
    first = [
        axes
        for axes in figure.axes
        if (place := axes.get_subplotspec()) is not None and place.is_first_col()
    ]
    if len(first) > 1:
        figure.supylabel(y, fontsize=matplotlib.rcParams["axes.labelsize"])
    side_by_side = any(
        (place := axes.get_subplotspec()) is not None and place.colspan.start
        for axes in figure.axes
    )
    for axes in figure.axes:
        if axes in first[:1] and len(first) == 1:
            axes.set_ylabel(fill(y, 20) if figure.get_figheight() < 3.5 else y)  # a low panel
        if axes.xaxis.get_tick_params()["labelbottom"]:
            axes.set_xlabel(fill(x, 20) if side_by_side else x)
    figure.align_ylabels()


def count_axis(figure: Figure, counts: Iterable[float]) -> None:
    """Scale x by powers of two, with ticks exactly at the counts as plain numbers, turned where
    they would touch.
    """
    counts = sorted(set(counts))
    for axes in figure.axes if counts else ():
        axes.set_xscale("log", base=2)
        _ticks(axes.xaxis, FixedLocator(counts), ".0f")
        axes.set_xlim(counts[0] / 1.3, counts[-1] * 1.3)
        if _are_close(counts, figure.get_figwidth() / grid(axes).ncols):
            axes.tick_params(axis="x", labelrotation=60)


def _are_close(counts: Sequence[float], width: float) -> bool:
    """Tell whether labels at these places of a logarithmic axis, in a panel so wide [inches], would
    overlap.
    """
    doubled = [math.log2(count) for count in counts]
    inch = 0.7 * width / (doubled[-1] - doubled[0] + 0.8)
    pairs = zip(doubled, doubled[1:], counts[1:], strict=False)
    return any(
        (after - before) * inch < 0.05 + 0.085 * len(str(count)) for before, after, count in pairs
    )


def _ticks(axis: XAxis | YAxis, at: Locator, form: str = ",.10g") -> None:
    """Put plain numbers at these places, and nothing between them."""
    axis.set_major_locator(at)
    axis.set_major_formatter(StrMethodFormatter(f"{{x:{form}}}"))
    axis.set_minor_locator(NullLocator())


def worker_label(options: Options) -> str:
    """Return the name of the axis of worker counts."""
    return (
        f"workers ({options.device_name})"
        if options.device == "cpu"
        else f"{worker(options.device)}s"
    )


def logarithmic(figure: Figure, which: str = "y") -> None:
    """Make y, or x, logarithmic with plain numbers: at 1, 2, 5 within two decades, at 1, 3 or 1
    beyond; evenly below one.
    """
    for axes in figure.axes:
        axes.set(**{f"{which}scale": "log"})
    for axes in figure.axes:  # only now all limits, which panels may share, are known
        low, high = axes.get_ylim() if which == "y" else axes.get_xlim()
        subs = (1,) if high > 1000 * low else (1, 3) if high > 100 * low else (1, 2, 5)
        _ticks(
            getattr(axes, f"{which}axis"),
            LogLocator(subs=subs) if high > 10 * low else MaxNLocator(6),
        )


def ratio_y(figure: Figure) -> None:
    """Scale y by powers of two, with a tick and a line at 1."""
    for axes in figure.axes:
        axes.set_yscale("log", base=2)
    for axes in figure.axes:
        low, high = (math.log2(end) for end in axes.get_ylim())
        every = math.ceil((high - low) / 7)
        _ticks(
            axes.yaxis,
            FixedLocator([2.0 ** (every * n) for n in range(-30, 31) if low <= every * n <= high]),
        )
        axes.axhline(1.0, **ONE)


def grid(axes: Axes) -> GridSpecBase:
    """Return the grid of panels that this one is in: rows and columns."""
    place = axes.get_subplotspec()
    assert place is not None  # panels have one
    return place.get_gridspec()


def set_heights(figure: Figure, bars: Sequence[float], each: float) -> None:
    """Make panels as high as the most bars that one of their row has, of so many inches each."""
    spec = grid(figure.axes[0])
    rows = [max(bars[n * spec.ncols : (n + 1) * spec.ncols]) for n in range(spec.nrows)]
    spec.set_height_ratios(rows)
    figure.set_size_inches(WIDTH, max(2.6, 1.2 + 0.45 * spec.nrows + each * sum(rows)))


def whole_numbers(axis: Axis) -> None:
    """Put ticks at integers only."""
    axis.set_major_locator(MaxNLocator(integer=True))


def side_by_side(axes: Axes, lines: int) -> Iterator[Transform]:
    """Yield the positions of the bars and dots of each of so many lines: a little shifted, so that
    none hides another.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None  # axes that are drawn have one
    step = min(5.0, 20.0 / max(1, lines - 1))  # points
    for place in range(lines):
        aside = ScaledTranslation((place - (lines - 1) / 2) * step / 72, 0, figure.dpi_scale_trans)
        yield axes.transData + aside


def bars(
    axes: Axes,
    x: Values,
    middle: Values,
    low: Values,
    high: Values,
    style: Style,
    steps: bool = False,
) -> None:
    """Draw a bar with caps from `low` to `high` at each point that has them; a dotted one without
    caps where it is not a confidence interval, but the spread of a single run's `steps`. A wide one
    does not stretch the axis: the frame cuts it.
    """
    there = low.notna() & high.notna()
    if not there.any():
        return
    x, middle, low, high = (values[there].astype(float) for values in (x, middle, low, high))
    ends = ((middle - low).clip(lower=0.0), (high - middle).clip(lower=0.0))
    before = axes.dataLim.frozen().get_points()
    look: dict[str, Any] = {
        "transform": style.get("transform", axes.transData),
        "capsize": 0 if steps else 3,
    }
    drawn = axes.errorbar(
        x, middle, ends, fmt="none", ecolor=style["color"], elinewidth=1.2, **look
    )
    if steps:
        drawn[2][0].set_linestyle(":")
    axes.dataLim.set_points(before)
    low, high = (end.clip(middle.min() / BEYOND, middle.max() * BEYOND) for end in (low, high))
    axes.update_datalim(
        [*zip(x, middle, strict=True), *zip(x, low, strict=True), *zip(x, high, strict=True)]
    )
    axes.autoscale_view()


def dots(axes: Axes, x: Values, values: Iterable[Sequence[float]], style: Style) -> None:
    """Draw a dot for each repeat of the points, where there are several."""
    several = [
        (at, value) for at, runs in zip(x, values, strict=True) for value in runs if len(runs) > 1
    ]
    if several:
        look = {
            "markeredgecolor": style["color"],
            "transform": style.get("transform", axes.transData),
        }
        # Thousands of dots are a picture in the file: as shapes they would fill the page.
        as_picture = len(several) > MOST_DOTS
        axes.plot(*zip(*several, strict=True), **DOT | look, color="white", rasterized=as_picture)
        axes.update_datalim(several)
        axes.autoscale_view()


def curves(panels: Sequence[tuple[Axes, pd.DataFrame]], x: str, y: str) -> dict[str, float]:
    """Draw a line per `line` of a panel through the medians of its runs, and a band from the lowest
    to the highest; return the last middle value of each, by line and panel.
    """
    import seaborn

    last = {}
    for axes, rows in panels:
        for name, points in rows.groupby("line"):
            look = points["style"].iloc[0] | {
                "markevery": max(1, points[x].nunique() // 10),
                "label": name,
            }
            band = ("pi", 100) if points["run"].nunique() > 1 else None
            seaborn.lineplot(
                points, x=x, y=y, ax=axes, estimator="median", errorbar=band, legend=False, **look
            )
            end = points.loc[points[x] == points[x].max(), y]
            last[", ".join(filter(None, (str(name), axes.get_title())))] = float(end.median())
        axes.set(xlabel="", ylabel="")
        explain_bars(axes, rows.groupby("line")["run"].nunique(), RANGE)
    return last


INTERVAL, SPREAD, RANGE = (
    "95 % confidence interval",
    "5 % to 95 % of its steps",
    "lowest to highest",
)


def explain_bars(
    axes: Axes,
    repeats: Iterable[int],
    bar: str = "",
    single: str = "",
    lying: bool = False,
    dot: str = "run",
) -> None:
    """Add to the legend what dots, bars and bands are, and of how many repeats: each as it is
    drawn.

    `bar`: what a bar or a band of several runs is, "" where there are dots only; `single`: of
    points of a single run; `dot`: what each dot is.
    """
    counts, empty = sorted({int(n) for n in repeats}), [math.nan]
    end: dict[str, Any] = {
        "xerr" if lying else "yerr": empty,
        "fmt": "none",
        "ecolor": "black",
        "elinewidth": 1.2,
    }
    if several := [n for n in counts if n > 1]:
        n = " to ".join(map(str, sorted({several[0], several[-1]})))
        if bar == RANGE:
            axes.fill_between(
                [], [], color="black", alpha=0.2, linewidth=0, label=f"n = {n}: {bar}"
            )
        else:
            axes.plot([], [], **DOT, color="white", label=f"n = {n}: one {dot} each")
        if bar == INTERVAL:
            axes.errorbar(empty, empty, **end, capsize=3, label=f"n = {n}: {bar}")
    if counts[:1] == [1] and single:
        axes.errorbar(empty, empty, **end, label=f"n = 1: {single}")[2][0].set_linestyle(":")
    elif counts[:1] == [1]:
        axes.plot([], [], linestyle="none", label="n = 1: one run")


def ranked(values: Mapping[Any, float], unit: str) -> str:
    """Format medians from the highest on, as `3 (a), 2 (b) and 1 (c) images/s`; of many, only the
    highest and the lowest.
    """
    order = [
        f"{rounded(values[name], 3)} ({name})"
        for name in sorted(values, key=lambda name: -values[name])
    ]
    if len(order) > MOST_NAMED:
        return f"from {order[0]} down to {order[-1]} {unit}".rstrip()
    return f"{listed(order)} {unit}".rstrip()


def reference_points(axes: Axes, points: pd.DataFrame, x: str, y: str = "value") -> None:
    """Draw published numbers as hollow black markers, their notes beside them; of a limit, a
    triangle to its open side.

    They lie along y; along x if y is another column, then without notes.
    """
    for (name, relation), group in points.groupby(["name", "relation"]):
        marker, says = RELATIONS[str(relation)]
        marker = marker if y == "value" else {"^": ">", "v": "<"}.get(marker, marker)
        axes.plot(group[x], group[y], label=f"{name}: {says}", **REFERENCE | {"marker": marker})
    if y != "value":
        return
    look = {
        "fontsize": SMALL,
        "path_effects": [withStroke(linewidth=2, foreground="white")],
        "zorder": 3.9,
    }
    named = points.sort_values([x, "value"])
    labels = [
        _labels.label_point(axes, note, at, value, aside=-_labels.ASIDE, ha="right", **look)
        for at, value, note in zip(named[x], named["value"], named["note"], strict=True)
    ]
    if isinstance(axes.figure, Drawing):
        axes.figure.published = (*axes.figure.published, *labels)


def legend(figure: Figure) -> None:
    """Draw one legend for all panels: where an odd number of them leaves a hole, if it fits there,
    or else below them.
    """
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    for last in [
        label for label in entries if label == "ideal" or ": " in label or " not " in label
    ]:
        entries[last] = entries.pop(
            last
        )  # ours first, then what bars are, the ideal and what others published
    if entries:
        width, height = figure.get_size_inches()
        spec, long = grid(figure.axes[0]), 0.55 + 0.067 * max(map(len, entries))  # inches, about
        across = min(len(entries), max(1, int(width / long)))
        ratios: Any = spec.get_height_ratios()
        low = (
            height * ratios[-1] / sum(ratios) - 0.6
        )  # inches that a hole in the last row has below the panel above
        look: dict[str, Any] = {"handlelength": 2.6, "columnspacing": 1.0, "handletextpad": 0.5}
        if (
            len(figure.axes) < spec.nrows * spec.ncols
            and long < 0.45 * width
            and 0.19 * len(entries) < low
        ):
            look |= {"loc": "center", "bbox_to_anchor": (0.54, 0.02, 0.45, low / height)}
        else:
            figure.set_size_inches(
                width, height + 0.19 * max(0, math.ceil(len(entries) / across) - 3)
            )  # its rows
            look |= {"loc": "outside lower center", "ncols": across}
        figure.legend(list(entries.values()), list(entries), frameon=False, **look)


def finished(figure: Drawing, x: str, y: str, result: str = "", shared: str = "") -> Drawing:
    """Finish the figure with the names of its axes, its legend, and the first sentence of its
    caption.

    `shared` is what all lines have in common; it stands below the title.
    """
    if shared:
        figure.suptitle("\n".join(filter(None, (figure.get_suptitle(), shared))), wrap=True)
    figure.result = result
    labels(figure, x, y)
    legend(figure)
    _labels.separate_labels(figure, figure.published)
    return figure


def caption(figure: Figure, how_to_read: str, device: str = "") -> str:
    """Return what people read below the picture: its result and a sentence on how to read it; on a
    second line the rest of how to read it, without sentences on the other kind of `device`, and
    what of that only this one has.
    """
    others = {"cpu": "On GPUs ", "cuda": "On CPUs "}.get(device, "\n")
    how_to_read = getattr(figure, "instead", "") or how_to_read
    sentences = re.split(r"(?<=\.) ", " ".join(how_to_read.split()))
    read = [sentence for sentence in sentences if not sentence.startswith(others)]
    result, notes = (figure.result, figure.notes) if isinstance(figure, Drawing) else ("", ())
    below = [" ".join(filter(None, [result, *read[:1]])), " ".join([*read[1:], *notes])]
    return "\n".join(filter(None, below))


def save(figure: Figure, prefix: Path, text: str = "", about: str = "") -> None:
    """Save `<prefix>.png`, `.svg` and `.pdf`, the same bytes for the same figure.

    Each of them carries the caption, `text`; a line below the picture says what it is of, so that
    it can be identified on a slide.
    """
    words = text or None
    width, height = figure.get_size_inches()
    below = SIGNATURE if about else 0.0
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # what has its place keeps it
    for legend in figure.legends:
        if (
            legend.get_bbox_to_anchor().bounds == figure.bbox.bounds
        ):  # else it would move to the lower edge of the file
            legend.set_bbox_to_anchor((0, 0, 1, 1), figure.transFigure)
    figure.text(
        0.99, (0.06 - below) / height, about, ha="right", va="bottom", fontsize=SMALL, color="0.4"
    )
    whole = Bbox.from_bounds(0, -below, width, height + below)
    files: tuple[tuple[str, dict[str, Any]], ...] = (
        (".svg", {"Date": None, "Description": words}),
        (".pdf", {"CreationDate": None, "Subject": words}),
        (".png", {"Description": words} if words else {}),
    )
    for suffix, metadata in files:
        with aside(prefix.with_name(prefix.name + suffix)) as hidden:
            figure.savefig(hidden, format=suffix[1:], dpi=200, metadata=metadata, bbox_inches=whole)
