"""What figures of stacked bars share: one lying bar per framework and worker count, so that long
names can be read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from ddlbench.analysis.intervals import over_repeats
from ddlbench.analysis.together import with_roles
from ddlbench.core.roles import AXIS, EXTENT, SETTING, SIZE
from ddlbench.show.figure_data import distinguishing
from ddlbench.show.figures import Options, _labels, _style

# Colour and hatch of a part by its place; neighbours differ in grey print too.
FILLS: tuple[tuple[str, str], ...] = (
    ("#ddaa33", ""),
    ("#004488", ""),
    ("#88ccee", "//"),
    ("#bb5566", ""),
)
FILLS += (
    ("white", "---"),
    ("0.9", ""),
    ("#117733", "\\\\"),
    ("#66ccee", "++"),
    ("#222222", ""),
    ("#999933", "xx"),
)
EDGE: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.5}
LONG = 12  # letters of a name, with which panels do not stand side by side
BAR, GAP = 0.22, 0.6  # inches that a bar takes, bars that the space between worker counts takes
MARK = " (extrapolated)"
ALWAYS = ("model", "loader")  # where there are several, bars of one panel are of one
OTHERS = with_roles(
    *(SETTING, AXIS, SIZE, EXTENT),
    without=("machine", "framework", "options", "workers", "interrupt_steps"),
    first=("model", "loader", "form", "global_batch"),
)
NAMES = (
    "run",
    "framework",
    "workers",
    *OTHERS,
)  # what the data of these figures have beside their parts


def finished(
    figure: _style.Drawing,
    x: str,
    options: Options,
    parts: Mapping[str, str],
    panels: Sequence[tuple[Axes, pd.DataFrame]],
    result: str = "",
) -> _style.Drawing:
    """Finish the figure with the names of its axes, its legend, and its result: `result`, or else
    the longest and the shortest bar, and of several parts the largest of all bars together.
    """
    rows = (
        pd.concat([some.assign(panel=axes.get_title()) for axes, some in panels])
        if panels
        else pd.DataFrame()
    )
    if not result and len(rows) and len(rows := rows[~rows["published"]]):
        names = [
            ", ".join(filter(None, map(str, row)))
            for row in rows[["framework", "workers", "panel"]].to_numpy()
        ]
        lengths = dict(zip(names, rows[list(parts)].sum(axis=1), strict=True))
        quantity, unit = x.split(" [")[0], x.partition("[")[2].rstrip("]")
        result = f"{quantity[:1].upper()}{quantity[1:]}, medians: {_style.ranked(lengths, unit)}."
        sums = rows[list(parts)].sum()
        if len(parts) > 1 and sums.sum() > 0:
            result += (
                f" Of all bars together, {parts[str(sums.idxmax())]} is"
                f" {100 * sums.max() / sums.sum():.0f} %."
            )
    return _style.finished(figure, x, f"framework, {_style.worker_label(options)}", result)


def extend_axes(axes: Axes, x: float) -> None:
    """Extend the axes, which panels share, at least so far."""
    axes.set_xlim(right=max(axes.get_xlim()[1], x))


def label_bars(axes: Axes, rows: pd.DataFrame, words: Sequence[str]) -> None:
    """Write a word beyond the end of each bar, and make room for it."""
    ends = rows["each"].map(max).combine(rows["high"].fillna(0.0), max)
    for word, end, place in zip(words, ends, rows["bar"], strict=True):
        _labels.label_point(axes, word, end, place, fontsize=_style.SMALL)
    width = 3.4 if _style.grid(axes).ncols == 1 else 1.1  # inches, about
    extend_axes(
        axes,
        float(ends.max()) / max(0.3, 1 - (0.1 + 0.07 * max(map(len, words), default=0)) / width),
    )


def explain_unknown(axes: Axes, label: str) -> None:
    """Explain in the legend what a question mark beside a bar means."""
    axes.plot([], [], marker="$?$", color="black", linestyle="none", label=label)


def stacks(
    table: pd.DataFrame,
    parts: Mapping[str, str],
    options: Options,
    others: Sequence[str] = OTHERS,
    fills: Sequence[tuple[str, str]] = FILLS,
    across: int = 2,
    dots: bool = True,
    by_size: bool = False,
) -> tuple[_style.Drawing, list[tuple[Axes, pd.DataFrame]]]:
    """Draw stacked bars: return a figure and its panels with their rows, one per bar; `bar` is the
    bar's place on the y axis.

    `table` has one row per run: `framework` and `workers` name its bar, `parts` (column -> what the
    legend says) are stacked, null ones left out; `dots` are single runs. The columns of `others`
    that distinguish bars make panels. Of repeats each part is the median, `repeats` says of how
    many, and `low` and `high` are the 95 % confidence interval of the whole bar. Bars of a worker
    count stand in the order of their names, or the shortest first (`by_size`). Rows with a true
    `published` are drawn paler.
    """
    table = table.assign(published=table.get("published", False))
    if "global_batch" in table:
        # Where batches grow with the workers, only the batch per worker distinguishes bars.
        a_worker = table["global_batch"] // table["workers"]
        if a_worker.nunique() <= table["global_batch"].nunique():
            table = table.drop(columns="global_batch").assign(batch_per_worker=a_worker)
            others = [
                "batch_per_worker" if column == "global_batch" else column for column in others
            ]
    keys = [*others, "workers", "published", "framework"]
    values = [column for column in table.select_dtypes("number") if column not in keys]
    groups = table.groupby(keys, dropna=False)
    rows = groups[values].median().assign(repeats=groups.size())
    intervals = [_interval(group[list(parts)].sum(axis=1)) for _, group in groups]
    each: Any = [group[list(parts)].sum(axis=1).tolist() for _, group in groups]
    rows = rows.assign(each=pd.Series(each, rows.index, "object"))
    rows = rows.assign(
        low=[low for low, _ in intervals], high=[high for _, high in intervals]
    ).reset_index()
    by = distinguishing(rows, ["framework", "workers", "published"], others)
    by += [
        column
        for column in ALWAYS
        if column not in by and column in others and rows[column].nunique() > 1
    ]
    if "of_epochs" in rows:
        part = rows["epochs"] < rows["of_epochs"]
        rows["framework"] = [
            f"{name}{MARK}" if some else name
            for name, some in zip(rows["framework"], part, strict=True)
        ]
    longest = rows["framework"].astype(str).str.len().max()
    figure, panels = _style.panels(
        rows, by, options, share_y=False, across=1 if longest > LONG else across
    )
    panels = [(axes, _places(group, list(parts) if by_size else [])) for axes, group in panels]
    ends = [_stack(axes, group, parts, fills, dots) for axes, group in panels]
    if panels:
        for axes, group in panels:
            axes.set_ylim(group["bar"].max() + 0.7, -0.7)
            if (
                _style.grid(axes).ncols > 1
            ):  # a long title goes on over the names of bars, not beyond the picture
                axes.title.set(x=1.0, horizontalalignment="right")
        # Panels share the x axis: one limit, once all bars are known.
        panels[0][0].set_xlim(
            1.08 * min(left for left, _ in ends), 1.08 * max(right for _, right in ends) or 1
        )
        _style.set_heights(figure, [float(group["bar"].max()) + 1.4 for _, group in panels], BAR)
    return figure, panels


def _interval(totals: pd.Series[float]) -> tuple[float, float]:
    """Return the confidence interval of the complete bar over repeats; NaN for one."""
    if len(totals) < 2 or not (totals > 0).all():
        return math.nan, math.nan
    ends = over_repeats(totals.tolist())
    return (
        (ends.low, ends.high)
        if ends.low is not None and ends.high is not None
        else (math.nan, math.nan)
    )


def _places(rows: pd.DataFrame, parts: Sequence[str]) -> pd.DataFrame:
    """Give bars their places from above, those of a worker count together: by name, or by the sum
    of `parts`.
    """
    size = rows[[*parts]].sum(axis=1)  # 0 without parts
    rows = (
        rows.assign(size=size)
        .sort_values(["workers", "published", "size", "framework"])
        .drop(columns="size")
    )
    count = rows["workers"].rank(method="dense") - 1
    return rows.assign(bar=[float(place) for place in range(len(rows))] + GAP * count)


def _stack(
    axes: Axes,
    rows: pd.DataFrame,
    parts: Mapping[str, str],
    fills: Sequence[tuple[str, str]],
    dots: bool,
) -> tuple[float, float]:
    """Draw the bars, and return how far they reach, to the left and to the right."""
    right, left = (
        pd.Series(0.0, index=rows.index),
        pd.Series(0.0, index=rows.index),
    )  # what is below 0 goes left
    for (column, label), (colour, hatch) in zip(parts.items(), fills, strict=False):
        width = rows[column].fillna(0.0).astype("float64")
        begins = right.where(width >= 0, left)
        named = label if len(parts) > 1 else f"_{label}"  # else the axis says it
        bars = axes.barh(
            rows["bar"], width, left=begins, label=named, color=colour, hatch=hatch, **EDGE
        )
        for bar, pale in zip(bars, rows["published"], strict=True):
            bar.set_alpha(0.45 if pale else 1.0)
        right, left = right + width.clip(lower=0.0), left + width.clip(upper=0.0)
    names = [
        f"{framework}, {workers}"
        for framework, workers in zip(rows["framework"], rows["workers"], strict=True)
    ]
    reached = float(right.max())
    for several in rows[dots & (rows["repeats"] > 1)].to_dict("records"):
        axes.plot(
            several["each"], [several["bar"]] * len(several["each"]), **_style.DOT, color="white"
        )
        reached = max(reached, *several["each"])
    axes.set_yticks(rows["bar"], names)
    axes.grid(False, axis="y")
    return float(left.min()), reached


def whiskers(axes: Axes, rows: pd.DataFrame, low: str = "", high: str = "") -> None:
    """Draw confidence intervals at the ends of bars; for single runs, the spread of their steps
    (columns `low` and `high`), dotted. The frame cuts one that reaches far beyond all bars.
    """
    ends = rows["each"].map(max)
    most = float(ends.max())
    single = rows[(rows["repeats"] == 1) & rows[low].notna()] if low else rows[:0]
    for group, left, right in ((rows[rows["low"].notna()], "low", "high"), (single, low, high)):
        if len(group):
            about: dict[str, Any] = {"fmt": "none", "ecolor": "black", "elinewidth": 1.2}
            about["capsize"] = 3 if left == "low" else 0
            middle = (group[left] + group[right]) / 2
            drawn = axes.errorbar(
                middle, group["bar"], xerr=(group[right] - group[left]) / 2, **about
            )
            if left != "low":
                drawn[2][0].set_linestyle(":")
            extend_axes(axes, 1.05 * min(float(group[right].max()), _style.BEYOND * most))
    bar = _style.INTERVAL if rows["low"].notna().any() else ""
    _style.explain_bars(
        axes, rows["repeats"], bar, _style.SPREAD if len(single) else "", lying=True
    )
