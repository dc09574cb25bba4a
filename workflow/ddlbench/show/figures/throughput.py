"""Training throughput in images per second over the number of workers, both axes logarithmic. The dotted grey line is
ideal scaling from the highest rate on the fewest workers: twice the workers, twice the images. Points are medians over
n repeats; bars with caps are their 95 % intervals. Of a single run (n = 1) there is no interval, and a dotted bar shows
the spread of its steps. Colourless hollow markers are published numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ddlbench.show.figures import Options, Tables

TABLES = ("runs",)
PUBLISHED = ("throughput",)
SETTINGS: tuple[str, ...] = ()


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per series of runs and worker count (`analysis/scaling.py`)."""
    from ddlbench.show.figures import _scaling

    return _scaling.data(tables, options, "throughput_images_per_s")


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel per model and batch; throughput after warm-up [images/s]."""
    from ddlbench.show.figures import _scaling, _style

    figure, panels = _scaling.panels(data, options)
    counts = sorted({count for _, rows in panels for count in rows["workers"]})
    for axes, rows in panels:
        _scaling.lines(axes, rows, "throughput_images_per_s")
        base = rows[rows["workers"] == rows["workers"].min()]["throughput_images_per_s"].max()
        if len(counts) > 1:
            ideal = [base * count / rows["workers"].min() for count in counts]
            axes.plot(counts, ideal, label="ideal", **_style.IDEAL)
    _style.count_axis(figure, _scaling.published(panels, "throughput", options) | {*counts})
    _style.log_y(figure)
    _style.labels(figure, _style.worker_label(options), "throughput [images/s]")
    _style.legend(figure)
    return figure
