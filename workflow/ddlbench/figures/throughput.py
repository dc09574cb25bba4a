"""Training throughput in images per second over the number of workers, both axes logarithmic. The dotted grey line is
ideal scaling from the fastest run on the fewest workers: twice the workers, twice the images. Bars reach from the
slowest to the fastest repeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ddlbench.figures._tables import Options, Tables


def draw(tables: Tables, options: Options) -> Figure:
    """A panel a model and batch; throughput after warm-up [images/s]."""
    from ddlbench.figures import _scaling, _style

    figure, panels = _scaling.panels(tables, options)
    counts = sorted({count for _, rows in panels for count in rows["workers"]})
    for axes, rows in panels:
        _scaling.lines(axes, rows, "throughput_images_per_s", "throughput")
        base = rows[rows["workers"] == rows["workers"].min()]["throughput_images_per_s"].max()
        if len(counts) > 1:
            ideal = [base * count / rows["workers"].min() for count in counts]
            axes.plot(counts, ideal, label="ideal", **_style.IDEAL)
    _style.count_axis(figure, counts)
    _style.log_y(figure)
    _style.labels(figure, _style.worker_label(options), "throughput [images/s]")
    _style.legend(figure)
    return figure
