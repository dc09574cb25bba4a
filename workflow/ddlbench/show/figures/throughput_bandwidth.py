"""Training throughput in images per second over the bandwidth of the cable between two workers, both axes logarithmic.
Steps before an optimizer begins to compress are among those that are timed. Points are medians over n repeats; bars
with caps are their 95 % intervals. Of a single run (n = 1) there is no interval, and a dotted bar shows the spread of
its steps.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.show.figures import Options, Tables, _scaling, _style
from ddlbench.show.figures._tables import distinguishing

TABLES = ("runs",)
RATE = "throughput_images_per_s"


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per series of runs (`analysis/scaling.py`) and number of workers; a bandwidth is a series of its own."""
    table = _scaling.data(tables, options, RATE)
    return table[table["bandwidth_mbit"].notna()]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel per model, recipe, ...; one line per framework and loader."""
    members = ["framework", "loader"]
    others = ["model", "recipe", "dataset", "workers", "batch_per_worker", "global_batch", "schedule", "epochs"]
    others += ["of_epochs", "form"]
    names = zip(data["framework"], data["loader"], strict=True)
    drawn = data.assign(
        bandwidth_mbit=data["bandwidth_mbit"].astype("float64"),
        line=data["framework"] + ", " + data["loader"],
        style=pd.Series([_style.member_style(*pair, options.frameworks) for pair in names], data.index, "object"),
    ).sort_values([*members, "bandwidth_mbit"])
    figure, panels = _style.panels(drawn, distinguishing(data, [*members, "bandwidth_mbit"], others), options)
    for axes, rows in panels:
        _scaling.lines(axes, rows, RATE, x="bandwidth_mbit")
    _style.at_values(figure, drawn["bandwidth_mbit"])
    _style.log_y(figure)
    return _style.finished(figure, "bandwidth [Mbit/s]", f"throughput [{options.sample}/s]")
