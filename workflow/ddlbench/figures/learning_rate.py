"""Learning rate over epochs of training as it was logged at each step, a line for each schedule and a panel for each
global batch size. It rises linearly while warming up; its peak grows with the batch size, so each panel has its own
scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ddlbench.figures._tables import Options, Tables


def draw(tables: Tables, options: Options) -> Figure:
    """Each line is the first of the runs that share recipe, batch, epochs and schedule: they share the rates."""
    import pandas as pd

    from ddlbench.figures import _style
    from ddlbench.figures._tables import distinguishing, finished

    by = ["global_batch", "recipe", "epochs"]
    table = finished(tables, "learning_rates", ["schedule", *by])
    figure, panels = _style.panels(table, distinguishing(table, ["schedule"], by), options, share_y=False)
    for axes, rows in panels:
        for schedule, runs in rows.groupby("schedule"):
            steps = runs[runs["run"] == runs["run"].min()]
            # A rate holds from its step to the next, the last one to the end of training.
            epochs = pd.concat([steps["epoch"], steps["epochs"].tail(1)])
            rates = pd.concat([steps["lr"], steps["lr"].tail(1)])
            style = _style.schedule_style(schedule) | {"marker": "", "drawstyle": "steps-post"}
            axes.plot(epochs, rates, label=schedule, **style)
        axes.set_ylim(bottom=0)
        _style.whole_numbers(axes.xaxis)
    _style.labels(figure, "epochs trained", "learning rate")
    _style.legend(figure)
    return figure
