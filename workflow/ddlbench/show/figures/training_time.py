"""Time of the whole training, with validation and warm-up and without interruptions. Bars are
medians, dots single runs; lines at the ends of bars are 95 % intervals. The shortest time of a
worker count stands first.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.analysis.together import usable
from ddlbench.show.figure_data import references
from ddlbench.show.figures import Options, Tables, _bars, _style

PARTS = {"full_train_s": "training"}
TABLES = ("runs",)
PUBLISHED = ("runtime",)
UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per run: the time of its complete training [s]."""
    runs = usable(tables["runs"])
    runs = runs[runs["full_train_s"].notna()]
    return runs[[*_bars.NAMES, *PARTS]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per loader, model, batch, ...; one bar per framework and worker count, the
    shortest first.
    """
    longest = 0.0 if data.empty else float(data["full_train_s"].max())
    unit, seconds = next((unit for unit in UNITS if longest >= 2 * unit[1]), UNITS[-1])
    table = data.assign(full_train_s=data["full_train_s"] / seconds)
    figure, panels = _bars.stacks(table, PARTS, options, by_size=True)
    for axes, rows in panels:
        _bars.whiskers(axes, rows)
        points = references(
            options, "runtime", rows.drop(columns=["framework", "schedule"], errors="ignore")
        )
        if len(points):
            points["time"] = points["value"] * points["unit"].map(dict(UNITS)) / seconds
            figure.note(
                "Colourless hollow markers are published times for the same number of workers."
            )
            points["bar"] = points["workers"].map(
                rows.groupby("workers")["bar"].mean()
            )  # at the centre of the bars of that worker count
            points = points.dropna(subset="bar")
            _style.reference_points(axes, points, "time", "bar")
            _bars.extend_axes(axes, 1.05 * points["time"].max())
    if (data["epochs"] < data["of_epochs"]).any():
        figure.note(
            "Of runs that trained only some of their epochs, the missing ones are extrapolated at"
            " the same rate."
        )
    return _bars.finished(figure, f"training time [{unit}]", options, PARTS, panels)
