"""The picture of what if: the rate of one worker over worker counts, as it is and after each change.

It is no member of `figures/`: it needs the machine and predictions, where a study's figure needs tables only.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.outlook.what_if.changes import AS_IT_IS, KINDS
from ddlbench.outlook.what_if.computed import MEASURED
from ddlbench.show.figures import Options, _looks, _style

BAND = "band, bar: 95 % interval"


def draw(made: Sequence[Mapping[str, Any]], options: Options) -> Figure:
    """One panel per kind of change, of the first series; the others are in the table.

    Colourless filled markers are measured; lines and hollow markers are computed, with the interval of each.
    """
    table = pd.DataFrame(made)
    table = table[(table["series"] == table["series"].iloc[0]) & table["why_not"].isna()]
    numbers = ["images_per_s", "images_per_s_low", "images_per_s_high"]
    table = table.astype(dict.fromkeys(numbers, float))
    for column in numbers:
        table[column] /= table["workers"]
    kinds = [kind for kind in KINDS if (table["change"] == kind).any()] or [AS_IT_IS]
    as_it_is = table[table["change"] == AS_IT_IS]
    shown = pd.concat([table[table["change"].isin([kind, AS_IT_IS])].assign(panel=kind) for kind in kinds])
    figure, panels = _style.panels(shown, ["panel"], options)
    figure.suptitle(f"{options.title}\n{table['series'].iloc[0]}", wrap=True)
    names = [*dict.fromkeys(table["what"])]
    for axes, some in panels:
        axes.set_title(some["panel"].iloc[0].replace("_", " "))
        _base(axes, as_it_is)
        for name, points in some[some["change"] != AS_IT_IS].groupby("what", sort=False):
            style = {**_looks.nth_style(names.index(str(name)) - 1), "markerfacecolor": "white", "linewidth": 1.2}
            points = points.sort_values("workers")
            axes.plot(points["workers"], points["images_per_s"], **style, label=name)
            middle, low, high = (points[column] for column in numbers)
            _style.bars(axes, points["workers"], middle, low, high, {"color": style["color"]})
    _style.count_axis(figure, table["workers"])
    for axes in figure.axes:
        axes.set_ylim(bottom=0)
        axes.tick_params(axis="x", labelrotation=60)
        axes.plot([], [], linestyle="none", label=BAND)
    _style.labels(figure, _style.worker_label(options), f"{options.sample}/s of one worker (computed)")
    _style.legend(figure)
    return figure


def _base(axes: Any, rows: pd.DataFrame) -> None:
    """What was measured, and what is computed from it without any change."""
    rows = rows.sort_values("workers")
    measured, beyond = rows[rows["by"] == MEASURED], rows[rows["by"] != MEASURED]
    look = {"color": "black", "marker": "o", "zorder": 4}
    axes.plot(measured["workers"], measured["images_per_s"], **look, linestyle="none", label="measured: as it is")
    known = measured[measured["images_per_s_low"].notna()]
    ends = (known["images_per_s"] - known["images_per_s_low"], known["images_per_s_high"] - known["images_per_s"])
    ends = (ends[0].clip(lower=0.0), ends[1].clip(lower=0.0))  # equal rates: an end may be beyond them by rounding
    axes.errorbar(known["workers"], known["images_per_s"], ends, fmt="none", ecolor="black", capsize=3)
    axes.fill_between(
        beyond["workers"], beyond["images_per_s_low"], beyond["images_per_s_high"], color="0.8", linewidth=0, zorder=1
    )
    hollow = {**look, "markerfacecolor": "white", "linestyle": ":"}
    axes.plot(beyond["workers"], beyond["images_per_s"], **hollow, label="computed: as it is")
