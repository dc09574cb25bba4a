"""Efficiency: speed-up divided by ideal speed-up, both against the fewest workers of the same
series; the dotted grey line is ideal. That of time to accuracy falls, too, where larger batches
need more epochs. Dots are pairs of runs, points their medians, bars with caps their 95 % intervals;
the frame cuts those that are wide.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.show.figures import Options, Tables, _scaling

TABLES = ("runs",)
PUBLISHED = ("efficiency",)
SETTINGS = ("basis",)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per series of runs and worker count (`analysis/scaling.py`)."""
    return _scaling.data(tables, options, "efficiency")


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per model and batch; E_G = S_G * ref / G of `analysis/scaling.py`."""
    return _scaling.draw(
        data,
        options,
        "efficiency",
        f"efficiency\n({_scaling.subject(data, options)})",
        "efficiency",
    )
