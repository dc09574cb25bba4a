"""Top-1 accuracy on the validation images after each epoch of training; a line per learning-rate
schedule or, where there is one schedule, per framework and loader. Lines are medians of repeats,
bands reach from the lowest to the highest.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.analysis.together import with_roles
from ddlbench.core.roles import AXIS, EXTENT, SETTING, SIZE
from ddlbench.show.figure_data import distinguishing, finished
from ddlbench.show.figures import Options, Tables, _looks, _style

TABLES = ("runs", "epochs")

MEMBERS = ["framework", "loader"]
OTHERS = with_roles(
    *(SETTING, AXIS, SIZE, EXTENT),
    without=("machine", "schedule", "options", "interrupt_steps", *MEMBERS),
    first=("global_batch", "model"),
)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per run and epoch; `top1` is a fraction."""
    table = finished(tables, "epochs", ["schedule", *MEMBERS, *OTHERS]).dropna(subset="top1")
    return table[["run", "schedule", *MEMBERS, *OTHERS, "epoch", "top1"]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel for each global batch size, and whatever else distinguishes runs."""
    line = ["schedule"] if data["schedule"].nunique() > 1 else MEMBERS
    by = distinguishing(
        data, line, [*OTHERS, *(column for column in MEMBERS if column not in line)]
    )
    table, shared = data.assign(percent=100 * data["top1"]), ""
    if line == MEMBERS:
        table, shared = _looks.name_lines(table, by, options)
    else:
        styles = [_looks.schedule_style(str(schedule)) for schedule in table["schedule"]]
        table = _looks.styled(table, table["schedule"], styles)
    figure, panels = _style.panels(table, by, options)
    last = _style.curves(panels, "epoch", "percent")
    for axes, _ in panels:
        _style.whole_numbers(axes.xaxis)
    result = f"After the last epoch, medians: {_style.ranked(last, '%')}." if last else ""
    return _style.finished(figure, "epoch", "top-1 accuracy [%]", result, shared)
