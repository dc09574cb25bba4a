"""Mean training loss of each epoch's steps, at the epoch's end, over the images, or other samples,
that were trained on; a line per framework and loader. Lines are medians of repeats, bands reach
from the lowest to the highest.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.analysis.together import with_roles
from ddlbench.core.roles import AXIS, EXTENT, SETTING, SIZE
from ddlbench.show.figure_data import distinguishing, finished
from ddlbench.show.figures import Options, Tables, _looks, _style

TABLES = ("runs", "epochs")

MEMBERS = ["framework", "loader"]
OTHERS = with_roles(
    *(SETTING, AXIS, SIZE, EXTENT),
    without=("machine", "options", "interrupt_steps", *MEMBERS),
    first=("model", "recipe", "dataset", "schedule", "global_batch"),
)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per run and epoch; `samples` are the images trained on by its end, over all
    workers.
    """
    table = finished(tables, "epochs", [*MEMBERS, *OTHERS, "images"]).dropna(
        subset=["loss", "images"]
    )
    table = table.assign(samples=table["epoch"] * table["images"].astype("int64"))
    return table[["run", *MEMBERS, *OTHERS, "samples", "loss"]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel for each model, recipe, ...; the loss over thousands of images."""
    by = distinguishing(data, MEMBERS, OTHERS)
    table, shared = _looks.name_lines(data.assign(thousands=data["samples"] / 1e3), by, options)
    figure, panels = _style.panels(table, by, options)
    last = _style.curves(panels, "thousands", "loss")
    result = f"At the end, medians: {_style.ranked(last, '')}." if last else ""
    return _style.finished(
        figure, f"{options.sample} trained on [thousands]", "mean training loss", result, shared
    )
