"""Cost of the whole training: its node hours, at the machine's price where its file names one, and the expected loss by
interruptions with the chosen interval between checkpoints. The loss is computed from what a checkpoint and a restart
took in interrupted runs of the same settings, and from the machine's mean time between interruptions (table costs;
Daly 2006, doi:10.1016/j.future.2004.11.016). A question mark stands where one of these is not known: there the loss is
missing, not zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ddlbench.show.figures import Options, Tables

PARTS = {"training": "training", "loss": "expected loss by interruptions"}
TABLES = ("costs",)
PUBLISHED: tuple[str, ...] = ()
SETTINGS: tuple[str, ...] = ()


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per setting, with the chosen interval: training and loss, in `currency` or else in node hours."""
    from ddlbench.analysis.costs import CHOSEN
    from ddlbench.show.figures import _bars

    table = tables["costs"]
    table = table[table["interval"] == CHOSEN]
    priced = table["cost"].notna()
    training = table["cost"].where(priced, table["node_hours"])
    loss = table["loss_cost"].where(priced, table["loss_node_hours"])
    table = table.assign(training=training, loss=loss)
    return table[["run", "framework", "workers", *_bars.OTHERS, *PARTS, "currency", "loss_percent", "why"]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel per loader, model, batch, ...; one bar per framework and worker count."""
    from ddlbench.show.figures import _bars, _style

    unit = "node hours" if data["currency"].isna().all() else str(data["currency"].dropna().iloc[0])
    figure, panels = _bars.stacks(data.drop(columns=["currency", "why"]), PARTS, options)
    for axes, rows in panels:
        whole = rows[list(PARTS)].sum(axis=1)
        for end, place, share in zip(whole, rows["bar"], rows["loss_percent"], strict=True):
            said = "?" if share != share else f"+{share:.2g} %"  # not known is not equal to itself
            axes.annotate(
                said, (end, place), (4, 0), textcoords="offset points", va="center", fontsize="small", clip_on=False
            )
        axes.set_xlim(right=max(axes.get_xlim()[1], 1.35 * float(whole.max())))  # the axis is shared
        axes.locator_params(axis="x", nbins=4)  # small costs have long numbers
        if rows["loss_percent"].isna().any():
            axes.plot([], [], marker="$?$", color="black", linestyle="none", label="loss not known")
    _style.labels(figure, f"cost [{unit}]", _bars.y_label(options))
    _style.legend(figure)
    return figure
