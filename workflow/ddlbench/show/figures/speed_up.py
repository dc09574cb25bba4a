"""Speed-up over the number of workers: the time that the fewest workers need, divided by the time that so many need;
both axes logarithmic. The axis says which time is compared: that of the training steps of an epoch, after warm-up, or
that of the whole training with validation and warm-up. The dotted grey line is ideal: twice the workers, half the time.
Points are medians over n repeats; bars with caps are their 95 % intervals. Of a single run (n = 1) there is no
interval, and a dotted bar shows the spread of its steps. Colourless hollow markers are published numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ddlbench.show.figures import Options, Tables

TABLES = ("runs",)
PUBLISHED = ("speed-up",)
SETTINGS = ("basis",)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per series of runs and worker count (`analysis/scaling.py`)."""
    from ddlbench.show.figures import _scaling

    return _scaling.data(tables, options, "speed_up")


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel per model and batch; S_G = T_ref / T_G of `analysis/scaling.py`."""
    from ddlbench.show.figures import _scaling

    bases = sorted(map(int, data["ref_workers"].unique()))
    unit = {"cuda": "GPU", "accelerator": "accelerator"}.get(options.device, "worker")
    over = f" over {' or '.join(map(str, bases))} {unit}{'s' * (bases != [1])}" if bases else ""
    return _scaling.relative(data, "speed_up", options, f"speed-up{over}", log=True)
