"""Top-1 accuracy on the validation images in percent after each epoch of training, a line for each learning-rate
schedule or, where there is one schedule, for each framework and loader. Lines are medians over n repeats; bands reach
from the lowest to the highest of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ddlbench.show.figures import Options, Tables

TABLES = ("runs", "epochs")
PUBLISHED: tuple[str, ...] = ()
SETTINGS: tuple[str, ...] = ()

MEMBERS = ["framework", "loader"]
OTHERS = ["global_batch", "model", "dataset", "recipe", "epochs", "of_epochs", "workers", "form", "bandwidth_mbit"]


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per run and epoch; `top1` is a fraction."""
    from ddlbench.show.figures._tables import finished

    table = finished(tables, "epochs", ["schedule", *MEMBERS, *OTHERS]).dropna(subset="top1")
    return table[["run", "schedule", *MEMBERS, *OTHERS, "epoch", "top1"]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel for each global batch size, and whatever else tells runs apart."""
    from ddlbench.show.figures import _style
    from ddlbench.show.figures._tables import distinguishing

    line = ["schedule"] if data["schedule"].nunique() > 1 else MEMBERS
    by = distinguishing(data, line, OTHERS + [column for column in MEMBERS if column not in line])
    figure, panels = _style.panels(data, by, options)
    for axes, rows in panels:
        for values, points in rows.groupby(line):
            names = [str(value) for value in values]
            if line == ["schedule"]:
                style = _style.schedule_style(names[0])
            else:
                style = _style.member_style(names[0], names[1], options.frameworks)
            top1 = 100 * points.groupby("epoch")["top1"].agg(["median", "min", "max"])
            every = max(1, len(top1) // 10)
            axes.plot(top1.index, top1["median"], label=", ".join(names), markevery=every, **style)
            if points["run"].nunique() > 1:
                axes.fill_between(top1.index, top1["min"], top1["max"], color=style["color"], alpha=0.2, linewidth=0)
        _style.say_bars(axes, rows.groupby([*line, *by])["run"].nunique(), "lowest to highest")
        _style.whole_numbers(axes.xaxis)
    _style.labels(figure, "epoch", "top-1 accuracy [%]")
    _style.legend(figure)
    return figure
