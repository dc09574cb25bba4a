"""Parallel efficiency over the number of workers: speed-up divided by ideal speed-up, both against the fewest workers.
The axis says which time is compared: that of the training steps of an epoch, after warm-up, or that of the whole
training with validation and warm-up. The dotted grey line at 1 is ideal: no time is lost to working together. Bars
reach from the slowest to the fastest repeat; hollow black markers are published numbers, triangles where only a limit
was published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ddlbench.figures import Options, Tables

TABLES = ("runs",)
PUBLISHED = ("efficiency",)
SETTINGS = ("basis",)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per series of runs and worker count (`analysis/scaling.py`)."""
    from ddlbench.figures import _scaling

    return _scaling.data(tables, options, "efficiency", "efficiency")


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel per model and batch; E_G = S_G * ref / G of `analysis/scaling.py`."""
    from ddlbench.figures import _scaling, _style

    figure, panels = _scaling.panels(data, options)
    counts = {count for _, rows in panels for count in rows["workers"]}
    for axes, rows in panels:
        _scaling.lines(axes, rows, "efficiency", "efficiency")
        axes.axhline(1.0, label="ideal", **_style.IDEAL)
    counts |= _scaling.published(panels, "efficiency", options)
    for axes in figure.axes:
        axes.set_ylim(0, max(1.08, axes.get_ylim()[1]))
    _style.count_axis(figure, counts)
    _style.labels(figure, _style.worker_label(options), f"efficiency\n({_scaling.OF[options.basis]})")
    _style.legend(figure)
    return figure
