"""Training loss over the images that were trained on: the mean loss of each epoch's steps, at the epoch's end. A line
for each framework and loader, a panel for each model, recipe and batch size. Lines are medians over n repeats; bands
reach from the lowest to the highest of them.
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
OTHERS = ["model", "recipe", "dataset", "schedule", "global_batch", "epochs", "of_epochs", "workers"]
OTHERS += ["form", "bandwidth_mbit"]


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per run and epoch; `samples` are the images trained on by its end, over all workers."""
    from ddlbench.show.figures._tables import finished

    table = finished(tables, "epochs", [*MEMBERS, *OTHERS, "images"]).dropna(subset=["loss", "images"])
    table = table.assign(samples=table["epoch"] * table["images"].astype("int64"))
    return table[["run", *MEMBERS, *OTHERS, "samples", "loss"]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel for each model, recipe, ...; the loss over thousands of images."""
    from ddlbench.show.figures import _style
    from ddlbench.show.figures._tables import distinguishing

    by = distinguishing(data, MEMBERS, OTHERS)
    figure, panels = _style.panels(data, by, options)
    for axes, rows in panels:
        for (framework, loader), points in rows.groupby(MEMBERS):
            style = _style.member_style(str(framework), str(loader), options.frameworks)
            loss = points.groupby("samples")["loss"].agg(["median", "min", "max"])
            every = max(1, len(loss) // 10)
            thousands = loss.index / 1e3
            axes.plot(thousands, loss["median"], label=f"{framework}, {loader}", markevery=every, **style)
            if points["run"].nunique() > 1:
                axes.fill_between(thousands, loss["min"], loss["max"], color=style["color"], alpha=0.2, linewidth=0)
        _style.say_bars(axes, rows.groupby(MEMBERS)["run"].nunique(), "lowest to highest")
    _style.labels(figure, "images trained on [thousands]", "mean training loss of the epoch")
    _style.legend(figure)
    return figure
