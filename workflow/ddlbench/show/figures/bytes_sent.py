"""Bytes that a node sent over its network in training, divided by the number of steps: gradients,
averages of losses, headers, and what was sent again. The kernel counts them at the network
interfaces, so whatever else used these is among them. Steps before an optimizer begins to compress
are in the mean. Bars are medians, dots single runs; lines at the ends of bars are 95 % intervals.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.analysis.together import usable
from ddlbench.core.formatting import rounded
from ddlbench.core.spec import steps_per_epoch
from ddlbench.show.figures import Options, Tables, _bars

TABLES = ("runs",)
PARTS = {"sent_bytes_per_step": "sent per step and node"}


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per run whose network was counted: bytes per step, a mean over nodes and
    steps.
    """
    runs = usable(tables["runs"])
    runs = runs[runs["network_sent_bytes"].notna() & runs["images"].notna()]
    steps = [
        epochs * steps_per_epoch(int(images), batch)
        for epochs, images, batch in zip(
            runs["epochs"], runs["images"], runs["global_batch"], strict=True
        )
    ]
    mean = runs["network_sent_bytes"].astype("float64") / runs["nodes"] / steps
    return runs.assign(sent_bytes_per_step=mean)[[*_bars.NAMES, *PARTS]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per model, recipe, bandwidth, ...; one bar per framework and worker count."""
    figure, panels = _bars.stacks(
        data.assign(sent_bytes_per_step=data["sent_bytes_per_step"] / 1e3), PARTS, options
    )
    for axes, rows in panels:
        _bars.whiskers(axes, rows)
        _bars.label_bars(axes, rows, [rounded(sent, 3) for sent in rows["sent_bytes_per_step"]])
    return _bars.finished(figure, "sent per step and node [kB]", options, PARTS, panels)
