"""What the figures over worker counts share: their data, panels, and one line per framework and
loader in each.
"""

import json
from collections.abc import Iterator
from statistics import median
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddlbench.analysis.scaling import compared_s, counted_runs, scaling
from ddlbench.analysis.together import SERIES, by_repeat, title
from ddlbench.core.formatting import count_of, rounded, worker
from ddlbench.core.registry import OWN
from ddlbench.show.figure_data import distinguishing, references
from ddlbench.show.figures import Options, Tables, _bars, _looks, _style

Panels = list[tuple[Axes, pd.DataFrame]]  # with their rows
MOST_LINES = 4  # that share a panel, where framework and loader both vary
RATIOS = ("speed_up", "efficiency")  # over the fewest workers, of pairs of runs
PER_JOULE = "images_per_j"
# What a measure of scaling is of, by the basis that a study names.
SPAN = {"steps": "training steps", "run": "the whole training"}


def subject(data: pd.DataFrame, options: Options) -> str:
    """Return what speed-up and efficiency refer to. The complete training of others' logs ends at
    their target.
    """
    others = len(data) > 0 and data["loader"].isna().all()
    return "time to accuracy" if others and options.basis == "run" else SPAN[options.basis]


def data(tables: Tables, options: Options, measure: str) -> pd.DataFrame:
    """Return rows of `scaling` with one measure: its median, `_low` and `_high`, the spread of
    single runs' steps, and `each`: its values of all repeats, as JSON. Of a ratio `repeats` are its
    pairs: a repeat without a base of its own makes none.
    """
    table = scaling(tables["runs"], options.basis)
    ends = [measure, f"{measure}_low", f"{measure}_high"]
    runs = counted_runs(tables["runs"], options.basis)
    if measure in RATIOS:
        table["repeats"] = table["pairs"]
    table["each"] = _each(runs.assign(compared_s=compared_s(runs, options.basis)), table, measure)
    return table[
        [*SERIES, "workers", "ref_workers", "repeats", *ends, "each", "spread_low", "spread_high"]
    ]


def _each(runs: pd.DataFrame, table: pd.DataFrame, measure: str) -> list[str]:
    """Return a measure of each run, by the rows of `scaling`, which stand in the same order.

    A ratio is that of each pair of repeats, whose median the line goes through. Runs without a pair
    are compared with the baseline's median, as in `significance.ratio`. The baseline has no ratio to
    itself.
    """
    values: list[list[float]] = []
    base: dict[int | str, float] = {}
    for row, (_, group) in zip(
        table.to_dict("records"), runs.groupby([*SERIES, "workers"], dropna=False), strict=True
    ):
        if measure == "throughput_images_per_s":
            values.append(group[measure].tolist())
            continue
        times = by_repeat(group, "compared_s")
        if row["workers"] == row["ref_workers"]:
            base = times
            values.append([])
            continue
        ideal = row["workers"] / row["ref_workers"] if measure == "efficiency" else 1.0
        pairs = sorted(set(base) & set(times))
        if pairs:
            values.append([base[repeat] / times[repeat] / ideal for repeat in pairs])
        else:
            middle = median([*base.values()])
            values.append([middle / time / ideal for time in times.values()])
    return [json.dumps([float(f"{value:.6g}") for value in of_row]) for of_row in values]


def panels(table: pd.DataFrame, options: Options) -> tuple[_style.Drawing, Panels, str]:
    """Return a figure, its panels with their rows of `table` (see `data`), which also have `line`
    (its label) and `style`, and what all lines share.

    There is one line per framework and loader, and one panel per model, batch, ...; where that
    would put more than MOST_LINES of several frameworks and loaders into one panel, also per
    loader. With only one framework and loader, there is one line per model, batch, ... Lines of
    runs that trained only some of their epochs are labelled so.
    """
    table, shared = table.copy(), ""
    others = (
        not table.empty and table["loader"].isna().all()
    )  # records of others: a line per submitter and system
    members = ["machine"] if others else ["framework", "loader"]
    by = distinguishing(table, [*members, "workers"], [key for key in SERIES if key not in members])
    if others:
        by = [key for key in by if key == "model"]
        lines = sorted(table["machine"].unique())
        table = _looks.styled(
            table, table["machine"], [_looks.nth_style(lines.index(m)) for m in table["machine"]]
        )
    elif by and len(table[members].drop_duplicates()) == 1:
        line = by.pop(0)
        shared = ", ".join(
            name for name in table[members].iloc[0] if name != OWN
        )  # a program has no loader of ours
        # resnet50 before resnet101
        values = sorted(table[line].dropna().unique(), key=lambda value: (len(str(value)), value))
        table["at"] = [
            len(values) if pd.isna(value) else values.index(value) for value in table[line]
        ]
        table = table.sort_values("at", kind="stable")
        styles = [_looks.nth_style(place) for place in table.pop("at")]
        table = _looks.styled(table, [title(line, value) for value in table[line]], styles)
    else:
        if (table[members].nunique() > 1).all() and len(
            table[members].drop_duplicates()
        ) > MOST_LINES:
            by.append("loader")
        table, shared = _looks.name_lines(table, by, options)
    part = (table["epochs"] < table["of_epochs"]).fillna(False)
    table["line"] = [
        f"{line} (extrapolated)" if some else line
        for line, some in zip(table["line"], part, strict=True)
    ]
    alone = one_count(table, options)  # then names of lines take the room of a second panel
    return *_style.panels(table, by, options, share_y=not alone, across=1 if alone else 2), shared


def one_count(table: pd.DataFrame, options: Options) -> bool:
    """Tell whether all is of one number of workers, so that no line goes anywhere: each is a bar.

    Ratios are 1 then.
    """
    measured = not {"throughput_images_per_s", "reached_s", PER_JOULE}.isdisjoint(table.columns)
    counts = {*table["workers"]}
    if options.reference is not None:
        counts |= {*options.reference["workers"]}
    return measured and len(counts) == 1


def horizontal_bars(
    figure: _style.Drawing,
    places: Panels,
    measure: str,
    x: str,
    options: Options,
    quantity: str = "",
) -> None:
    """Draw one horizontal bar per line, the best first, with its runs and its confidence interval;
    published numbers are hollow bars.
    """
    heights = []
    for axes, rows in places:
        theirs = published_bars(rows, measure, quantity, options)
        rows = pd.concat([rows, theirs]) if len(theirs) else rows
        heights.append(len(rows) + 0.4)
        rows = rows.sort_values(measure, ascending=measure == "reached_s")
        spread = {f"steps_{end}": rows[measure] * rows[f"spread_{end}"] for end in ("low", "high")}
        ends = {end: rows[f"{measure}_{end}"] for end in ("low", "high")}
        rows = rows.assign(
            bar=range(len(rows)), each=rows["each"].map(json.loads), **ends, **spread
        )
        colours = [style["color"] for style in rows["style"]]
        axes.barh(rows["bar"], rows[measure], color=colours, label="_", **_bars.EDGE)
        axes.set_yticks(rows["bar"], rows["line"])
        axes.grid(False, axis="y")
        axes.set_ylim(len(rows) - 0.3, -0.7)
        for row in rows[rows["repeats"] > 1].to_dict("records"):
            axes.plot(row["each"], [row["bar"]] * len(row["each"]), **_style.DOT, color="white")
        _bars.whiskers(axes, rows[rows["repeats"] > 0], *spread)
        if len(theirs):
            figure.note("Hollow bars are published numbers.")
        _bars.label_bars(axes, rows, [rounded(value, 3) for value in rows[measure]])
    _style.set_heights(figure, heights, _bars.BAR)
    count = count_of(int(places[0][1]["workers"].iloc[0]), worker(options.device))
    how = (
        "Bars are medians, dots single runs, lines at their ends 95 % confidence intervals; the"
        " frame cuts those that are wide."
    )
    figure.instead = f"{x.split(' [')[0].capitalize()} on {count}. {how}"


def published_bars(
    rows: pd.DataFrame, measure: str, quantity: str, options: Options
) -> pd.DataFrame:
    """Return the published numbers of a quantity that fit the rows of a panel, as rows of it
    without repeats.
    """
    points = (
        references(options, quantity, rows.drop(columns="schedule")) if quantity else pd.DataFrame()
    )
    if points.empty:
        return points
    values = points["value"].astype("float64")
    table = pd.DataFrame({measure: values, "line": points["name"], "workers": points["workers"]})
    table["each"] = [json.dumps([value]) for value in values]
    hollow: Any = [{"color": "white"}] * len(table)
    return table.assign(style=hollow, repeats=0)


def lines(axes: Axes, rows: pd.DataFrame, measure: str, x: str = "workers") -> None:
    """Draw the lines through the medians of a measure, with their confidence intervals, or the
    spread of steps where there is one run.

    The columns are those of `data`. Lines are drawn at their values. Bars and dots of several lines
    stand side by side, so that none hides another.
    """
    barred = rows[f"{measure}_low"].notna() | rows["spread_low"].notna()
    sides = _style.side_by_side(axes, rows.loc[barred, "line"].nunique())
    for label, points in rows.groupby("line", sort=False):
        style = points["style"].iloc[0]
        at, middle = points[x], points[measure]
        axes.plot(at, middle, label=label, **style)
        if barred[points.index].any():
            style = style | {"transform": next(sides)}
        _style.bars(axes, at, middle, points[f"{measure}_low"], points[f"{measure}_high"], style)
        _style.dots(axes, at, points["each"].map(json.loads), style)
        low, high = (middle * points[f"spread_{end}"] for end in ("low", "high"))
        _style.bars(axes, at, middle, low, high, style, steps=True)
    bar = _style.INTERVAL if rows[f"{measure}_low"].notna().any() else ""
    single = _style.SPREAD if rows["spread_low"].notna().any() else ""
    _style.explain_bars(
        axes, rows["repeats"], bar, single, dot="pair" if measure in RATIOS else "run"
    )


def result(places: Panels, measure: str, unit: str, options: Options) -> str:
    """Describe the medians at the most workers, from the highest on."""
    most = max((int(rows["workers"].max()) for _, rows in places), default=0)
    values = {}
    for axes, rows in places:
        for row in rows[rows["workers"] == most].to_dict("records"):
            values[", ".join(filter(None, (row["line"], axes.get_title())))] = row[measure]
    where = f"On {count_of(most, worker(options.device))}, medians"
    return f"{where}: {_style.ranked(values, unit)}." if values else ""


def draw(
    data: pd.DataFrame, options: Options, measure: str, y_label: str, quantity: str = ""
) -> Figure:
    """Draw a measure over worker counts, with published numbers of a quantity.

    Efficiency has no log axis.
    """
    figure, places, shared = panels(data, options)
    counts = sorted({count for _, rows in places for count in rows["workers"]})
    unit = y_label.partition("[")[2].rstrip("]") or ("of 1" if measure == "efficiency" else "times")
    words = result(places, measure, unit, options)
    if places and one_count(data, options):
        horizontal_bars(figure, places, measure, y_label, options, quantity)
        return _style.finished(figure, y_label, "", words, shared)
    for axes, rows in places:
        lines(axes, rows, measure)
        for at, values in _ideal(rows, measure, counts):
            axes.plot(at, values, label="ideal", **_style.IDEAL)
    seen = published(places, quantity, options) if quantity else set()
    if seen:
        figure.note(
            "Colourless hollow markers are published numbers; triangles are published limits."
        )
    if measure == "speed_up":
        _style.ratio_y(figure)
    elif measure != "efficiency":
        _style.logarithmic(figure)
    else:
        for axes in figure.axes:
            axes.set_ylim(0, max(1.08, axes.get_ylim()[1]))
    _style.count_axis(figure, seen | {*counts})
    return _style.finished(figure, _style.worker_label(options), y_label, words, shared)


def _ideal(
    rows: pd.DataFrame, measure: str, counts: list[int]
) -> Iterator[tuple[list[int], list[float]]]:
    """Yield points of the ideal: for efficiency 1; for speed-up a line from each baseline; else a
    line from the best on the fewest workers, along which images per joule stay.
    """
    if measure in RATIOS:
        for ref in sorted(rows["ref_workers"].unique()):
            beyond = [count for count in counts if count >= ref]
            yield beyond, [count / ref if measure == "speed_up" else 1.0 for count in beyond]
    elif measure == PER_JOULE and len(counts) > 1:
        best = rows[rows["workers"] == rows["workers"].min()][measure].max()
        yield counts, [best] * len(counts)
    elif len(counts) > 1:
        fewest = rows["workers"].min()
        first = rows[rows["workers"] == fewest][measure]
        slower = measure == "reached_s"
        yield (
            counts,
            [first.min() * fewest / n if slower else first.max() * n / fewest for n in counts],
        )


def published(panels: Panels, quantity: str, options: Options) -> set[int]:
    """Draw the published numbers of a quantity in each panel that they fit; return the worker
    counts that they are at.
    """
    counts: set[int] = set()
    for axes, rows in panels:
        points = references(options, quantity, rows.drop(columns="schedule"))
        if not points.empty:
            _style.reference_points(axes, points, "workers")
            counts |= set(points["workers"])
    return counts
