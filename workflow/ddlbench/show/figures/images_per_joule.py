"""Images trained per joule over the number of workers; both axes logarithmic. The energy is that of
the whole training, validation included, as the computers' own counters have it. Along the dotted
grey line, from the highest value on the fewest workers, more workers train as many images per
joule. Points are medians, dots single runs, bars with caps 95 % intervals; the frame cuts those
that are wide. A run whose energy is not known has no point.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.show.figures import Options, Tables, _scaling

TABLES = ("runs",)
RATE = "throughput_images_per_s"


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per series of runs and worker count (`analysis/scaling.py`)."""
    runs = tables["runs"]
    per_joule = runs["images_seen"].astype("float64") / runs["energy_j"].astype("float64")
    known = runs.assign(**{RATE: per_joule})[per_joule.notna()]
    table = _scaling.data({"runs": known}, options, RATE)
    # Steps have no energy of their own, and so no spread.
    table = table.assign(spread_low=float("nan"), spread_high=float("nan"))
    return table.rename(
        columns={f"{RATE}{end}": f"{_scaling.PER_JOULE}{end}" for end in ("", "_low", "_high")}
    )


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per model and batch; images or other samples per joule."""
    label = f"energy efficiency [{options.sample}/J]"
    return _scaling.draw(data, options, _scaling.PER_JOULE, label)
