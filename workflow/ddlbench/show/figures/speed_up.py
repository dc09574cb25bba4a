"""Speed-up: the time that the fewest workers need, divided by the time that so many need; both axes
go by doublings. The line at 1 is no gain, the dotted grey one ideal. Dots are pairs of runs, points
their medians, bars with caps their 95 % intervals; the frame cuts those that are wide.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.core.formatting import worker
from ddlbench.show.figures import Options, Tables, _scaling

TABLES = ("runs",)
PUBLISHED = ("speed-up",)
SETTINGS = ("basis",)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per series of runs and worker count (`analysis/scaling.py`)."""
    return _scaling.data(tables, options, "speed_up")


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per model and batch; S_G = T_ref / T_G of `analysis/scaling.py`."""
    bases = sorted(map(int, data["ref_workers"].unique()))
    over = (
        f" over {' or '.join(map(str, bases))} {worker(options.device)}{'s' * (bases != [1])}"
        if bases
        else ""
    )
    over = over if len(bases) < 3 else f" over the fewest {worker(options.device)}s"
    return _scaling.draw(
        data,
        options,
        "speed_up",
        f"speed-up{over}\n({_scaling.subject(data, options)})",
        "speed-up",
    )
