"""The picture of a recommendation: each candidate's price over its time to the target, and the front of both.

It is no member of `figures/`: it needs the machine's price and predictions, where a study's figure needs tables only.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from ddlbench.outlook.predictions import MEASURED
from ddlbench.show.figures import Options, _looks, _style

POINT = ["dataset", "model", "system", "framework", "loader", "options", "workers", "global_batch"]  # one marker
UNITS = (("h", 1.0), ("min", 1 / 60), ("s", 1 / 3600))  # the first in which the shortest time is at least 1


def draw(rows: Sequence[dict[str, Any]], options: Options) -> Figure:
    """One panel per data set and model of the candidates among `rows` (with `place` and `front`).

    Filled markers are measured, hollow ones predicted. Bars are 95 % intervals of the time, of candidates on the front.
    Of candidates that differ in schedule or recipe only, the best is drawn; the table has all.
    """
    table = pd.DataFrame([row for row in rows if row["why_not"] is None])
    unit, hours = next((unit for unit in UNITS if table["hours"].min() >= unit[1]), UNITS[-1])
    sold = bool((table["price"].astype(float) > 0).all())
    numbers = {"hours": float, "hours_low": float, "hours_high": float}
    table = table.astype(numbers).assign(cost=table["price"] if sold else table["worker_hours"])
    table[[*numbers]] /= hours
    table["line"] = table["system"].fillna(table["framework"] + ", " + table["loader"].fillna(""))
    table = table.sort_values("place").drop_duplicates(POINT)
    lines = sorted(table["line"].unique())
    by = [column for column in ("dataset", "model", "accelerator") if table[column].nunique() > 1]
    figure, panels = _style.panels(table, by, options)
    for axes, some in panels:
        for label, points in some.groupby("line", sort=True):
            head = points.iloc[0]
            style = _looks.nth_style(lines.index(str(label)))  # fill tells what is predicted, so markers differ
            if head["system"] is None:
                style["color"] = _looks.member_style(head["framework"], head["loader"], options.frameworks)["color"]
            look = {"color": style["color"], "marker": style["marker"], "linestyle": "none", "markersize": 7}
            axes.plot([], [], label=label, **look)
            for by_what, group in points.groupby("speed_by"):
                face = style["color"] if by_what == MEASURED else "white"
                name = f"_{label}, {by_what}"
                axes.plot(group["hours"], group["cost"], **look, markerfacecolor=face, label=name, zorder=3)
            ends = points[points["front"].astype(bool)]
            bars = ends[ends["hours_low"].notna()]
            reach = [bars["hours"] - bars["hours_low"], bars["hours_high"] - bars["hours"]]
            reach = [end.clip(lower=0.0) for end in reach]  # of equal rates they may be less by rounding
            axes.errorbar(
                bars["hours"], bars["cost"], xerr=reach, fmt="none", ecolor=style["color"], elinewidth=1, capsize=3
            )
        ends = some[some["front"].astype(bool)].sort_values(["hours", "cost"])
        axes.plot(ends["hours"], ends["cost"], label="front of both", **_style.IDEAL)
        axes.margins(y=0.15)
        first = some[some["place"] == 1]
        ring: dict[str, Any] = {"marker": "o", "markersize": 15, "markerfacecolor": "none", "markeredgecolor": "black"}
        axes.plot(first["hours"], first["cost"], **ring, linestyle="none", label="recommended", zorder=4)
        if (some["speed_by"] != MEASURED).any():
            hollow: dict[str, Any] = {"marker": "o", "markerfacecolor": "white", "markeredgecolor": "black"}
            axes.plot([], [], **hollow, linestyle="none", label="hollow: predicted")
        if ends["hours_low"].notna().any():
            axes.plot([], [], color="black", linewidth=1, marker="|", label=f"bar: {_style.INTERVAL}")
        for workers, x, y in zip(ends["workers"], ends["hours"], ends["cost"], strict=True):
            text: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": "small", "zorder": 5}
            text["path_effects"] = [withStroke(linewidth=2, foreground="white")]
            axes.annotate(str(workers), (x, y), (0, 9), **text)
    currency = table["currency"].iloc[0] or ""
    cost = f"price [{currency}]" if sold and currency else "price" if sold else "worker hours"
    _style.logarithmic(figure, "x")
    _style.logarithmic(figure)
    figure.axes[0].plot([], [], linestyle="none", label=f"number: {_style.worker_label(options)}")
    _style.labels(figure, f"time to top-1 {options.target:.3g} [{unit}]", cost)
    _style.legend(figure)
    return figure
