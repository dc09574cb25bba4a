"""Speed-up over the number of workers: the time that the fewest workers need, divided by the time that so many need;
both axes logarithmic. The axis says which time is compared: that of the training steps of an epoch, after warm-up, or
that of the whole training with validation and warm-up. The dotted grey line is ideal: twice the workers, half the time.
Points are medians over n repeats; bars with caps are their 95 % intervals. Of a single run (n = 1) there is no
interval, and a dotted bar shows the spread of its steps. Colourless hollow markers are published numbers.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.core.plural import worker
from ddlbench.show.figures import Options, Tables, _scaling

TABLES = ("runs",)
PUBLISHED = ("speed-up",)
SETTINGS = ("basis",)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per series of runs and worker count (`analysis/scaling.py`)."""
    return _scaling.data(tables, options, "speed_up")


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel per model and batch; S_G = T_ref / T_G of `analysis/scaling.py`."""
    bases = sorted(map(int, data["ref_workers"].unique()))
    over = f" over {' or '.join(map(str, bases))} {worker(options.device)}{'s' * (bases != [1])}" if bases else ""
    return _scaling.draw(data, options, "speed_up", f"speed-up{over}\n({_scaling.OF[options.basis]})", "speed-up")
