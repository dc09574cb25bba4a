"""Training loss over the images that were trained on: the mean loss of each epoch's steps, at the epoch's end. A line
for each framework and loader, a panel for each model, recipe and batch size. Lines are medians over n repeats; bands
reach from the lowest to the highest of them.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.show.figures import Options, Tables, _style
from ddlbench.show.figures._tables import distinguishing, finished

TABLES = ("runs", "epochs")

MEMBERS = ["framework", "loader"]
OTHERS = ["model", "recipe", "dataset", "schedule", "global_batch", "epochs", "of_epochs", "workers"]
OTHERS += ["form", "bandwidth_mbit"]


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per run and epoch; `samples` are the images trained on by its end, over all workers."""
    table = finished(tables, "epochs", [*MEMBERS, *OTHERS, "images"]).dropna(subset=["loss", "images"])
    table = table.assign(samples=table["epoch"] * table["images"].astype("int64"))
    return table[["run", *MEMBERS, *OTHERS, "samples", "loss"]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel for each model, recipe, ...; the loss over thousands of images."""
    by = distinguishing(data, MEMBERS, OTHERS)
    figure, panels = _style.panels(data.assign(thousands=data["samples"] / 1e3), by, options)
    for axes, rows in panels:
        for (framework, loader), points in rows.groupby(MEMBERS):
            style = _style.member_style(str(framework), str(loader), options.frameworks)
            _style.medians(axes, points, "thousands", "loss", f"{framework}, {loader}", style)
        _style.say_bars(axes, rows.groupby(MEMBERS)["run"].nunique(), "lowest to highest")
    return _style.finished(figure, "images trained on [thousands]", "mean training loss of the epoch")
