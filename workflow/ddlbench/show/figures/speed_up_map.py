"""What a framework saves, setting by setting: the time of plain PyTorch (DDP) over that of the
framework, on the same workers, as medians over repeats; white is 1. The colour bar says which time.
Each row is a model, those with the fewest floating-point operations per image above; each column is
a data set and a recipe. Bold numbers differ from 1 by a verdict; below each is its 95 % interval.
"""

import pandas as pd
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from ddlbench.analysis.scaling import compared_s
from ddlbench.analysis.significance import ratio
from ddlbench.show.figures import Options, Tables, _map, _scaling

TABLES = ("runs",)
SETTINGS = ("basis",)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per setting and framework: the speed-up as `value`, with its confidence
    interval.
    """
    runs = tables["runs"]
    times_s = {"compared_s": compared_s(runs, options.basis)}
    compared = {**tables, "runs": runs.assign(**times_s)}
    return _map.data(compared, "compared_s", lambda theirs, base: ratio(base, theirs))


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per framework and worker count."""
    most = max([1.25, *data["value"], *(1 / data["value"])])
    scale = LogNorm(1 / most, most)  # white is in the middle
    label = (
        f"time of {', '.join(sorted(set(data['base'])))} over time of the"
        f" other\n({_scaling.SPAN[options.basis]})"
    )
    return _map.draw(
        data,
        options,
        scale,
        "{:.2f}",
        label,
        f"Speed-up over {', '.join(sorted(set(data['base'])))}",
    )
