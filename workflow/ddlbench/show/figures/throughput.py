"""Training throughput, in images or other samples per second, over the number of workers, both axes logarithmic. The
dotted grey line is ideal scaling from the highest rate on the fewest workers: twice the workers, twice the samples.
Points are medians over n repeats; bars with caps are their 95 % intervals. Of a single run (n = 1) there is no
interval, and a dotted bar shows the spread of its steps. Colourless hollow markers are published numbers.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.show.figures import Options, Tables, _scaling

TABLES = ("runs",)
PUBLISHED = ("throughput",)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per series of runs and worker count (`analysis/scaling.py`)."""
    return _scaling.data(tables, options, "throughput_images_per_s")


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel per model and batch; throughput after warm-up, images or other samples per second."""
    return _scaling.draw(data, options, "throughput_images_per_s", f"throughput [{options.sample}/s]", "throughput")
