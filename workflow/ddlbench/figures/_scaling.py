"""What the figures over worker counts share: panels, and a line a framework and loader in each."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddlbench.analysis.scaling import SERIES, scaling
from ddlbench.figures import _style
from ddlbench.figures._tables import Options, Tables, distinguishing


def panels(tables: Tables, options: Options) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """A figure and its panels with their rows of `scaling`.

    A panel for each model, batch, ...; and, where there are several frameworks and several loaders, for each loader.
    """
    table = scaling(tables.runs)
    line = ["framework", "loader"]
    by = distinguishing(table, [*line, "workers"], [key for key in SERIES if key not in line])
    if (table[line].nunique() > 1).all():
        by.append("loader")
    return _style.panels(table, by, options)


def lines(axes: Axes, rows: pd.DataFrame, measure: str, name: str) -> None:
    """A line a framework and loader through the means of a measure, with bars from lowest to highest repeat.

    The columns are `measure`, `<name>_min` and `<name>_max`.
    """
    for (framework, loader), points in rows.groupby(["framework", "loader"]):
        style = _style.member_style(framework, loader)
        axes.plot(points["workers"], points[measure], label=f"{framework}, {loader}", **style)
        repeated = points[points["repeats"] > 1]
        below = repeated[measure] - repeated[f"{name}_min"]
        above = repeated[f"{name}_max"] - repeated[measure]
        bars: dict[str, Any] = {"fmt": "none", "ecolor": style["color"], "capsize": 3}
        if len(repeated):
            axes.errorbar(repeated["workers"], repeated[measure], (below, above), **bars)
