"""By how much a framework changes top-1 accuracy, setting by setting: that of the framework minus
that of plain PyTorch (DDP) after the last epoch, in percentage points, as medians over repeats with
equal seeds; white is 0. Each row is a model, those with the fewest floating-point operations per
image above; each column is a data set and a recipe. Bold numbers differ from 0 by a verdict; below
each is its 95 % interval.
"""

import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ddlbench.analysis.significance import difference
from ddlbench.show.figures import Options, Tables, _map

TABLES = ("runs",)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per setting and framework: the difference [percentage points] as `value`, with
    its confidence interval.
    """
    runs = tables["runs"]
    percent = runs.assign(top1_percent=100 * runs["final_top1"])
    return _map.data({"runs": percent}, "top1_percent", difference, same=0.0)


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per framework and worker count."""
    widest = max(1.0, float(data["value"].abs().max())) if len(data) else 1.0
    label = (
        f"top-1 accuracy minus that of {', '.join(sorted(set(data['base'])))}\n[percentage points]"
    )
    return _map.draw(
        data,
        options,
        Normalize(-widest, widest),
        "{:+.1f}",
        label,
        "Difference in percentage points",
    )
