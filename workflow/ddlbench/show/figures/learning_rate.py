"""Learning rate over epochs of training, as it was logged at each step; a line per schedule. It
rises linearly during warm-up. Its peak grows with the batch size, so each panel has its own scale.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.core.formatting import rounded
from ddlbench.show.figure_data import distinguishing, finished
from ddlbench.show.figures import Options, Tables, _looks, _style

TABLES = ("runs", "learning_rates")

BY = [
    "global_batch",
    "recipe",
    "settings",
    "epochs",
    "of_epochs",
]  # on which rates depend, and the schedule


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per recorded step, of the first of the runs that share schedule, batch, recipe
    and epochs.
    """
    table = finished(tables, "learning_rates", ["schedule", *BY])
    first = table.groupby(["schedule", *BY], dropna=False)["run"].transform("min")
    return table.loc[table["run"] == first, ["run", "schedule", *BY, "epoch", "lr"]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one line per run: runs with the same recipe, batch, epochs and schedule have the same
    rates.
    """
    figure, panels = _style.panels(
        data, distinguishing(data, ["schedule"], BY), options, share_y=False
    )
    for axes, rows in panels:
        for schedule, runs in rows.groupby("schedule"):
            steps = runs[runs["run"] == runs["run"].min()]
            # A rate holds from its step to the next, the last one to the end of training.
            epochs = pd.concat([steps["epoch"], steps["epochs"].tail(1)])
            rates = pd.concat([steps["lr"], steps["lr"].tail(1)])
            style = _looks.schedule_style(str(schedule)) | {"marker": "", "drawstyle": "steps-post"}
            axes.plot(epochs, rates, label=schedule, **style)
        axes.set_ylim(bottom=0)
        _style.whole_numbers(axes.xaxis)
    result = f"The highest rate is {rounded(float(data['lr'].max()), 3)}." if panels else ""
    return _style.finished(figure, "epochs trained", "learning rate", result)
