"""Time of the whole training, with validation and warm-up and without interruptions: the median over n repeats. Lines
at the end of a bar are its 95 % interval. Of runs that trained only some of their epochs (extrapolated), the others are
added at the rate of those that were trained. Colourless hollow markers are published times for so many workers.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.analysis.together import finished
from ddlbench.show.figures import Options, Tables, _bars
from ddlbench.show.figures._tables import references

PARTS = {"full_train_s": "training"}
TABLES = ("runs",)
PUBLISHED = ("runtime",)
UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per run: the time of its whole training [s]."""
    runs = finished(tables["runs"])
    runs = runs[runs["full_train_s"].notna()]
    return runs[[*_bars.NAMES, *PARTS]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel per loader, model, batch, ...; one bar per framework and worker count."""
    longest = 0.0 if data.empty else float(data["full_train_s"].max())
    unit, seconds = next((unit for unit in UNITS if longest >= 2 * unit[1]), UNITS[-1])
    table = data.assign(full_train_s=data["full_train_s"] / seconds, spread=float("nan"))
    figure, panels = _bars.stacks(table, PARTS, options)
    for axes, rows in panels:
        _bars.whiskers(axes, rows, "spread", "spread")
        points = references(options, "runtime", rows.drop(columns=["framework", "schedule"], errors="ignore"))
        if len(points):
            points["time"] = points["value"] * points["unit"].map(dict(UNITS)) / seconds
            _bars.reference_points(axes, rows, points, "time")
    return _bars.finished(figure, f"training time [{unit}]", options)
