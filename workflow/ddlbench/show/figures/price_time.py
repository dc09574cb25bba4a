"""Price of the whole training over its time, without interruptions: at the machine's price where
its file names one, else in node hours; both axes logarithmic. A line per framework and loader joins
its numbers of workers, which stand beside the points, where there is room. What lies further left
and further down than another is faster and cheaper.
"""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from ddlbench.analysis.sheets.costs import CHOSEN
from ddlbench.show.figure_data import distinguishing
from ddlbench.show.figures import Options, Tables, _bars, _labels, _looks, _style

TABLES = ("costs",)
MACHINE = ("terms",)
MEMBERS = ["framework", "loader"]
# A unit of time by how many hours the longest training takes at least.
UNITS = ((2.0, "h", 1.0), (2 / 60, "min", 60.0), (0.0, "s", 3600.0))
# A label is read on the line that it stands on.
LABEL: dict[str, Any] = {"path_effects": [withStroke(linewidth=2, foreground="white")], "zorder": 4}
ROOM = (0.15, 0.08)  # of the axes that a number of workers takes


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per setting: the time of its training [h], and what it costs, in `currency` or
    else in node hours.
    """
    table = tables["costs"]
    table = table[table["interval"] == CHOSEN]
    # One unit for all: hours of nodes are no price where others have one.
    price = table["cost"] if table["cost"].notna().any() else table["node_hours"]
    table = table.assign(hours=table["train_s"] / 3600, price=price)
    table = table[table["price"].notna()]
    return table[[*_bars.NAMES, "hours", "price", "currency"]]


def _with_room(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the points that have room for their number of workers, because no labelled point is
    near, by shares of the axes.
    """
    places = np.log(rows[["hours", "price"]].astype("float64"))
    shares = ((places - places.min()) / (places.max() - places.min()).replace(0.0, 1.0)).to_numpy()
    kept: list[int] = []
    for n in range(len(rows)):
        if all((abs(shares[n] - shares[other]) > ROOM).any() for other in kept):
            kept.append(n)
    return rows.iloc[kept]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per model, batch of a worker, ...; a point per number of workers."""
    longest = data["hours"].max() if len(data) else math.inf
    _, time, each = next(one for one in UNITS if longest >= one[0])
    table = data.assign(
        took=data["hours"] * each, batch_per_worker=data["global_batch"] // data["workers"]
    )
    others = [
        "batch_per_worker" if name == "global_batch" else name
        for name in _bars.OTHERS
        if name not in MEMBERS
    ]
    by = distinguishing(table, [*MEMBERS, "workers"], others)
    table, shared = _looks.name_lines(table, by, options)
    figure, panels = _style.panels(table, by, options)
    for axes, rows in panels:
        for line, points in rows.groupby("line", sort=False):
            points = points.sort_values("workers")
            axes.plot(points["took"], points["price"], label=line, **points["style"].iloc[0])
        for point in _with_room(rows).to_dict("records"):
            _labels.label_point(
                axes, f"{point['workers']}", point["took"], point["price"], 6, **LABEL
            )
    _style.logarithmic(figure, "x")
    _style.logarithmic(figure)
    unit = "node hours" if data["currency"].isna().all() else str(data["currency"].dropna().iloc[0])
    result = ""
    if len(data):
        firsts = [table.sort_values(name).iloc[0] for name in ("price", "hours")]
        ends = [f"{row['took']:.3g} {time} for {row['price']:.3g} {unit}" for row in firsts]
        result = f"Cheapest: {ends[0]}. Fastest: {ends[1]}."
    return _style.finished(
        figure, f"time of the training [{time}]", f"price [{unit}]", result, shared
    )
