"""Cost of the whole training: its node hours, at the machine's price where its file names one, and
the expected loss by interruptions with the chosen interval between checkpoints. The loss is
computed from what a checkpoint and a restart took in interrupted runs of the same settings, and
from the machine's mean time between interruptions (table costs; Daly 2006,
doi:10.1016/j.future.2004.11.016).
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.analysis.sheets.costs import CHOSEN
from ddlbench.show.figures import Options, Tables, _bars

PARTS = {"training": "training", "loss": "expected loss by interruptions"}
TABLES = ("costs",)
MACHINE = ("terms",)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per setting, with the chosen interval: training and loss, in `currency` or
    else in node hours.
    """
    table = tables["costs"]
    table = table[table["interval"] == CHOSEN]
    priced = table["cost"].notna()
    training = table["cost"].where(priced, table["node_hours"])
    loss = table["loss_cost"].where(priced, table["loss_node_hours"])
    table = table.assign(training=training, loss=loss)
    return table[[*_bars.NAMES, *PARTS, "currency", "loss_percent", "why"]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per loader, model, batch, ...; one bar per framework and worker count."""
    unit = "node hours" if data["currency"].isna().all() else str(data["currency"].dropna().iloc[0])
    figure, panels = _bars.stacks(data.drop(columns=["currency", "why"]), PARTS, options)
    for axes, rows in panels:
        _bars.label_bars(
            axes,
            rows,
            ["?" if pd.isna(share) else f"+{share:.2g} %" for share in rows["loss_percent"]],
        )
        axes.locator_params(axis="x", nbins=4)  # small costs have long numbers
        if rows["loss_percent"].isna().any():
            figure.note("At a question mark the loss is not known, which is not zero.")
            _bars.explain_unknown(axes, "loss not known")
    return _bars.finished(figure, f"cost [{unit}]", options, PARTS, panels)
