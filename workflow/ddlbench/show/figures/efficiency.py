"""Parallel efficiency over the number of workers: speed-up divided by ideal speed-up, both against the fewest workers.
The axis says which time is compared: that of the training steps of an epoch, after warm-up, or that of the whole
training with validation and warm-up. The dotted grey line at 1 is ideal: no time is lost to working together. Points
are medians over n repeats; bars with caps are their 95 % intervals. Of a single run (n = 1) there is no interval, and a
dotted bar shows the spread of its steps. Colourless hollow markers are published numbers, triangles where only a limit
was published.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.show.figures import Options, Tables, _scaling

TABLES = ("runs",)
PUBLISHED = ("efficiency",)
SETTINGS = ("basis",)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per series of runs and worker count (`analysis/scaling.py`)."""
    return _scaling.data(tables, options, "efficiency")


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel per model and batch; E_G = S_G * ref / G of `analysis/scaling.py`."""
    return _scaling.draw(data, options, "efficiency", f"efficiency\n({_scaling.OF[options.basis]})", "efficiency")
