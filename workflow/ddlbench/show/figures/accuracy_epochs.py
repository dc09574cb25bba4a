"""Top-1 accuracy on the validation images in percent after each epoch of training, a line for each learning-rate
schedule or, where there is one schedule, for each framework and loader. Lines are medians over n repeats; bands reach
from the lowest to the highest of them.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.show.figures import Options, Tables, _style
from ddlbench.show.figures._tables import distinguishing, finished

TABLES = ("runs", "epochs")

MEMBERS = ["framework", "loader"]
OTHERS = ["global_batch", "model", "dataset", "recipe", "epochs", "of_epochs", "workers", "form", "bandwidth_mbit"]


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per run and epoch; `top1` is a fraction."""
    table = finished(tables, "epochs", ["schedule", *MEMBERS, *OTHERS]).dropna(subset="top1")
    return table[["run", "schedule", *MEMBERS, *OTHERS, "epoch", "top1"]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel for each global batch size, and whatever else tells runs apart."""
    line = ["schedule"] if data["schedule"].nunique() > 1 else MEMBERS
    by = distinguishing(data, line, OTHERS + [column for column in MEMBERS if column not in line])
    figure, panels = _style.panels(data.assign(percent=100 * data["top1"]), by, options)
    for axes, rows in panels:
        for values, points in rows.groupby(line):
            names = [str(value) for value in values]
            if line == MEMBERS:
                style = _style.member_style(names[0], names[1], options.frameworks)
            else:
                style = _style.schedule_style(names[0])
            _style.medians(axes, points, "epoch", "percent", ", ".join(names), style)
        _style.say_bars(axes, rows.groupby([*line, *by])["run"].nunique(), "lowest to highest")
        _style.whole_numbers(axes.xaxis)
    return _style.finished(figure, "epoch", "top-1 accuracy [%]")
