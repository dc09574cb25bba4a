"""The figure of predicted rates. It is no member of `figures/`: it needs the machine, and
`outlook/predictions.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.show.figures import Options, _style
from ddlbench.show.figures._style import save as save

MEASURED = "measured"  # in column `by`
RATES = ("images_per_s", "images_per_s_low", "images_per_s_high")


def draw(rows: Sequence[Mapping[str, Any]], options: Options) -> Figure:
    """Draw the rate of one worker over worker counts, of the series with the largest measured
    count; the others are in the table.

    Filled markers are measured; the line with hollow markers is predicted, with its interval.
    """
    table = pd.DataFrame(rows)
    found = table[table["by"] == MEASURED].groupby("series")["workers"].agg(["max", "size"])
    shown = found.sort_values(["max", "size"], ascending=False, kind="stable").index[0]
    table = table[(table["series"] == shown) & table["why_not"].isna()]
    table = table.astype(dict.fromkeys(RATES, float)).sort_values("workers", kind="stable")
    table[[*RATES]] = table[[*RATES]].div(table["workers"], axis=0)
    figure, ((axes, _),) = _style.panels(table, [], options)
    figure.suptitle(f"{options.title}\n{shown}", wrap=True)
    measured, beyond = table[table["by"] == MEASURED], table[table["by"] != MEASURED]
    look: dict[str, Any] = {"color": "black", "marker": "o", "zorder": 4}
    middle, low, high = (measured[name] for name in RATES)
    axes.plot(measured["workers"], middle, **look, linestyle="none", label="measured")
    _style.bars(axes, measured["workers"], middle, low, high, look)
    axes.fill_between(
        beyond["workers"],
        beyond["images_per_s_low"],
        beyond["images_per_s_high"],
        color="0.8",
        linewidth=0,
        zorder=1,
    )
    hollow = {**look, "markerfacecolor": "white", "linestyle": ":"}
    axes.plot(beyond["workers"], beyond["images_per_s"], **hollow, label="predicted")
    axes.plot([], [], linestyle="none", label="band, bar: 95 % confidence interval")
    axes.set_ylim(bottom=0)
    axes.tick_params(axis="x", labelrotation=60)
    _style.count_axis(figure, table["workers"])
    _style.labels(
        figure, _style.worker_label(options), f"{options.sample}/s of one worker (predicted)"
    )
    _style.legend(figure)
    return figure
