"""Speed-up over the number of workers: how many times faster training is than on the fewest workers, both axes
logarithmic. The axis says which time is compared: that of the training steps of an epoch, after warm-up, or that of the
whole training with validation and warm-up. The dotted grey line is ideal: as many times faster as there are more
workers. Bars reach from the slowest to the fastest repeat; hollow black markers are published numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ddlbench.figures import Options, Tables

TABLES = ("runs",)
PUBLISHED = ("speed-up",)
SETTINGS = ("basis",)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per series of runs and worker count (`analysis/scaling.py`)."""
    from ddlbench.figures import _scaling

    return _scaling.data(tables, options, "speed_up", "speed_up")


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel per model and batch; S_G = T_ref / T_G of `analysis/scaling.py`."""
    from ddlbench.figures import _scaling, _style

    figure, panels = _scaling.panels(data, options)
    counts = sorted({count for _, rows in panels for count in rows["workers"]})
    for axes, rows in panels:
        _scaling.lines(axes, rows, "speed_up", "speed_up")
        for ref in sorted(rows["ref_workers"].unique()):
            beyond = [count for count in counts if count >= ref]
            axes.plot(beyond, [count / ref for count in beyond], label="ideal", **_style.IDEAL)
    _style.count_axis(figure, _scaling.published(panels, "speed-up", options) | {*counts})
    _style.log_y(figure)
    bases = sorted({int(ref) for _, rows in panels for ref in rows["ref_workers"]})
    unit = "GPU" if options.device == "cuda" else "worker"
    over = f" over {' or '.join(map(str, bases))} {unit}{'s' * (bases != [1])}" if bases else ""
    _style.labels(figure, _style.worker_label(options), f"speed-up{over}\n({_scaling.OF[options.basis]})")
    _style.legend(figure)
    return figure
