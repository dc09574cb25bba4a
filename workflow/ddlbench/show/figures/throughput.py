"""Throughput over the number of workers, in images or other samples per second; both axes
logarithmic. Along the dotted grey line, from the highest rate on the fewest workers, twice the
workers train twice the samples. Points are medians, dots single runs, bars with caps 95 %
intervals; the frame cuts those that are wide.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.show.figures import Options, Tables, _scaling

TABLES = ("runs",)
PUBLISHED = ("throughput",)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per series of runs and worker count (`analysis/scaling.py`)."""
    return _scaling.data(tables, options, "throughput_images_per_s")


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per model and batch; throughput after warm-up, images or other samples per
    second.
    """
    return _scaling.draw(
        data, options, "throughput_images_per_s", f"throughput [{options.sample}/s]", "throughput"
    )
