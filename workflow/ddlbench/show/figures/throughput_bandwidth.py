"""Throughput over the bandwidth of the cable between two workers; both axes logarithmic. Steps
before an optimizer begins to compress are among those that are timed. Points are medians, dots
single runs, bars with caps 95 % intervals; the frame cuts those that are wide.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.analysis.together import SERIES
from ddlbench.show.figure_data import distinguishing
from ddlbench.show.figures import Options, Tables, _looks, _scaling, _style

TABLES = ("runs",)
RATE = "throughput_images_per_s"


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per series of runs (`analysis/scaling.py`) and number of workers; a bandwidth
    is a series of its own.
    """
    table = _scaling.data(tables, options, RATE)
    return table[table["bandwidth_mbit"].notna()]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per model, recipe, ...; one line per framework and loader."""
    members = ["framework", "loader"]
    others = [key for key in (*SERIES, "workers") if key not in members]
    by = distinguishing(data, [*members, "bandwidth_mbit"], others)
    named, shared = _looks.name_lines(data, by, options)
    drawn = named.assign(bandwidth_mbit=data["bandwidth_mbit"].astype("float64"))
    drawn = drawn.sort_values([*members, "bandwidth_mbit"])
    figure, panels = _style.panels(drawn, by, options)
    for axes, rows in panels:
        _scaling.lines(axes, rows, RATE, x="bandwidth_mbit")
    _style.count_axis(figure, drawn["bandwidth_mbit"])
    _style.logarithmic(figure)
    least = drawn[drawn["bandwidth_mbit"] == drawn["bandwidth_mbit"].min()]
    values = _style.ranked(
        dict(zip(least["line"], least[RATE], strict=True)), f"{options.sample}/s"
    )
    result = f"At {least['bandwidth_mbit'].iloc[0]:g} Mbit/s, medians: {values}." if panels else ""
    return _style.finished(
        figure, "bandwidth [Mbit/s]", f"throughput [{options.sample}/s]", result, shared
    )
