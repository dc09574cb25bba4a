"""Top-1 accuracy on the validation images after the last epoch, over the global batch size (images
per step over all workers, logarithmic); a line per learning-rate schedule. Points are medians, dots
single runs.
"""

import math

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.analysis.together import usable, with_roles
from ddlbench.core.formatting import rounded
from ddlbench.core.roles import AXIS, EXTENT, SETTING
from ddlbench.show.figure_data import distinguishing, references
from ddlbench.show.figures import Options, Tables, _looks, _style

TABLES = ("runs",)
PUBLISHED = ("top1",)

APART = 0.5  # labels of the axis need so many doublings between them
WITHIN = with_roles(  # panels, where they tell points apart
    *(SETTING, AXIS, EXTENT),
    without=("machine", "schedule", "options", "interrupt_steps"),
    first=(
        "model",
        "dataset",
        "recipe",
        "epochs",
        "of_epochs",
        "framework",
        "loader",
        "form",
        "workers",
    ),
)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per run; `top1_percent` is its accuracy [%]."""
    runs = usable(tables["runs"])
    runs = runs[runs["final_top1"].notna()]
    runs = runs.assign(top1_percent=100 * runs["final_top1"])
    return runs[["run", "schedule", "global_batch", *WITHIN, "top1_percent"]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel for each model, framework, ... if there are several."""
    figure, panels = _style.panels(
        data, distinguishing(data, ["schedule", "global_batch"], WITHIN), options
    )
    sizes = set(data["global_batch"])
    for axes, rows in panels:
        for schedule, line in rows.groupby("schedule"):
            points = line.groupby("global_batch")["top1_percent"].agg(["median", list])
            style = _looks.schedule_style(str(schedule))
            axes.plot(points.index, points["median"], label=schedule, **style)
            _style.dots(axes, points.index, points["list"], style)
        _style.explain_bars(axes, rows.groupby(["schedule", "global_batch"])["run"].nunique())
        published = references(options, "top1", rows[["model", "schedule"]])
        if not published.empty:
            # If a source has only one schedule, the legend names it.
            alike = published.groupby("name")["note"].transform("nunique") == 1
            published = published.assign(note=published["note"].mask(alike, ""))
            _style.reference_points(axes, published, "global_batch")
            figure.note("Colourless hollow markers are published numbers with their schedules.")
            for size in sorted(published["global_batch"]):
                if all(abs(math.log2(size / other)) > APART for other in sizes):
                    sizes.add(size)
    _style.count_axis(figure, sizes)
    ends = sorted({data["global_batch"].min(), data["global_batch"].max()}) if panels else []
    middle = data.groupby("global_batch")["top1_percent"].median()
    result = " and ".join(
        f"{rounded(float(middle[size]), 3)} % with batches of {int(size):,}" for size in ends
    )
    result = f"Middle top-1 accuracy: {result}." if result else ""
    return _style.finished(figure, "global batch size [images]", "top-1 accuracy [%]", result)
