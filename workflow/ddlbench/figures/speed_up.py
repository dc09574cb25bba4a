"""Speed-up over the number of workers: how many times faster an epoch is than on the fewest workers, both axes
logarithmic. The dotted grey line is ideal: as many times faster as there are more workers. Bars reach from the slowest
to the fastest repeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ddlbench.figures._tables import Options, Tables


def draw(tables: Tables, options: Options) -> Figure:
    """A panel a model and batch; S_G = T_ref / T_G of `analysis/scaling.py`."""
    from ddlbench.figures import _scaling, _style

    figure, panels = _scaling.panels(tables, options)
    counts = sorted({count for _, rows in panels for count in rows["workers"]})
    for axes, rows in panels:
        _scaling.lines(axes, rows, "speed_up", "speed_up")
        for ref in sorted(rows["ref_workers"].unique()):
            beyond = [count for count in counts if count >= ref]
            axes.plot(beyond, [count / ref for count in beyond], label="ideal", **_style.IDEAL)
    _style.count_axis(figure, counts)
    _style.log_y(figure)
    bases = sorted({int(ref) for _, rows in panels for ref in rows["ref_workers"]})
    unit = "GPU" if options.device == "cuda" else "worker"
    over = f" over {' or '.join(map(str, bases))} {unit}{'s' * (bases != [1])}" if bases else ""
    _style.labels(figure, _style.worker_label(options), f"speed-up{over}")
    _style.legend(figure)
    return figure
