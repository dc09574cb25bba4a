"""Parallel efficiency over the number of workers: speed-up divided by ideal speed-up, both against the fewest workers.
The dotted grey line at 1 is ideal: no time is lost to working together. Bars reach from the slowest to the fastest
repeat; hollow black markers are published numbers, triangles where only a limit was published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ddlbench.figures._tables import Options, Tables


def draw(tables: Tables, options: Options) -> Figure:
    """A panel a model and batch; E_G = S_G * ref / G of `analysis/scaling.py`."""
    from ddlbench.figures import _scaling, _style
    from ddlbench.figures._tables import references

    figure, panels = _scaling.panels(tables, options)
    counts = {count for _, rows in panels for count in rows["workers"]}
    for axes, rows in panels:
        _scaling.lines(axes, rows, "efficiency", "efficiency")
        axes.axhline(1, label="ideal", **_style.IDEAL)
        published = references(options, "efficiency", rows.drop(columns="schedule"))
        if not published.empty:
            _style.reference_points(axes, published, "workers")
            counts |= set(published["workers"])
    for axes in figure.axes:
        axes.set_ylim(0, max(1.08, axes.get_ylim()[1]))
    _style.count_axis(figure, counts)
    _style.labels(figure, _style.worker_label(options), "efficiency")
    _style.legend(figure)
    return figure
