"""Bytes that a node sent over its network in training, divided by the number of steps: gradients, averages of losses,
headers, and what was sent again. The kernel counts them at the network interfaces, so whatever else used these is among
them. Steps before an optimizer begins to compress are in the mean. Bars are medians over n repeats; lines at their ends
are 95 % intervals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddlbench.analysis.together import finished

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ddlbench.show.figures import Options, Tables

TABLES = ("runs",)
PUBLISHED: tuple[str, ...] = ()
SETTINGS: tuple[str, ...] = ()
PARTS = {"sent_bytes_per_step": "sent per step and node"}


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per run whose network was counted: bytes per step, a mean over nodes and steps."""
    from ddlbench.core.spec import steps_per_epoch
    from ddlbench.show.figures import _bars

    runs = finished(tables["runs"])
    runs = runs[runs["network_sent_bytes"].notna() & runs["images"].notna()]
    steps = [
        epochs * steps_per_epoch(int(images), batch)
        for epochs, images, batch in zip(runs["epochs"], runs["images"], runs["global_batch"], strict=True)
    ]
    mean = runs["network_sent_bytes"].astype("float64") / runs["nodes"] / steps
    return runs.assign(sent_bytes_per_step=mean)[["run", "framework", "workers", *_bars.OTHERS, *PARTS]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel per model, recipe, bandwidth, ...; one bar per framework and worker count."""
    from ddlbench.show.figures import _bars, _style

    figure, panels = _bars.stacks(data.assign(sent_bytes_per_step=data["sent_bytes_per_step"] / 1e3), PARTS, options)
    for axes, rows in panels:
        for end, high, place in zip(rows["sent_bytes_per_step"], rows["high"], rows["bar"], strict=True):
            beyond = high if high == high else end
            said = f"{end:,.0f}" if end >= 100 else f"{end:.3g}"
            axes.annotate(said, (beyond, place), (4, 0), textcoords="offset points", va="center", fontsize=7)
        _bars.whiskers(axes, rows.assign(none=float("nan")), "none", "none")
        axes.set_xlim(right=max(axes.get_xlim()[1], 1.3 * rows["sent_bytes_per_step"].max()))
    _style.labels(figure, "sent per step and node [kB]", _bars.y_label(options))
    _style.legend(figure)
    return figure
