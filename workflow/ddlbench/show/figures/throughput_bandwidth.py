"""Training throughput in images per second over the bandwidth of the cable between two workers, both axes logarithmic.
Steps before an optimizer begins to compress are among those that are timed. Points are medians over n repeats; bars
with caps are their 95 % intervals. Of a single run (n = 1) there is no interval, and a dotted bar shows the spread of
its steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ddlbench.show.figures import Options, Tables

TABLES = ("runs",)
PUBLISHED: tuple[str, ...] = ()
SETTINGS: tuple[str, ...] = ()
RATE = "throughput_images_per_s"


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per series of runs (`analysis/scaling.py`) and number of workers; a bandwidth is a series of its own."""
    from ddlbench.show.figures import _scaling

    table = _scaling.data(tables, options, RATE)
    return table[table["bandwidth_mbit"].notna()]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel per model, recipe, ...; one line per framework and loader."""
    from ddlbench.show.figures import _style
    from ddlbench.show.figures._tables import distinguishing

    members = ["framework", "loader"]
    others = ["model", "recipe", "dataset", "workers", "batch_per_worker", "global_batch", "schedule", "epochs"]
    others += ["of_epochs", "form"]
    figure, panels = _style.panels(data, distinguishing(data, [*members, "bandwidth_mbit"], others), options)
    for axes, rows in panels:
        barred = rows[f"{RATE}_low"].notna() | rows["spread_low"].notna()
        sides = _style.side_by_side(axes, len(rows.loc[barred, members].drop_duplicates()))
        for (framework, loader), points in rows.groupby(members):
            style = _style.member_style(str(framework), str(loader), options.frameworks)
            if barred[points.index].any():
                style = style | {"transform": next(sides)}
            points = points.sort_values("bandwidth_mbit")
            x, middle = points["bandwidth_mbit"].astype("float64"), points[RATE]
            axes.plot(x, middle, label=f"{framework}, {loader}", **style)
            axes.update_datalim([*zip(x, middle, strict=True)])  # matplotlib leaves out what stands aside
            _style.bars(axes, x, middle, points[f"{RATE}_low"], points[f"{RATE}_high"], style)
            _style.spread(axes, x, middle, middle * points["spread_low"], middle * points["spread_high"], style)
        single = _style.SPREAD if rows["spread_low"].notna().any() else ""
        _style.say_bars(axes, rows["repeats"], single=single)
    _style.at_values(figure, data["bandwidth_mbit"].astype("float64"))
    _style.log_y(figure)
    _style.labels(figure, "bandwidth [Mbit/s]", "throughput [images/s]")
    _style.legend(figure)
    return figure
