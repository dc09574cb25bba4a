"""Where a training step's time goes: waiting for data, forward and backward pass, waiting for
gradients (communication), and the optimizer. On GPUs these are times of the stream that computes.
Communication is what it waits for: with ddp what the backward pass did not hide, with horovod its
synchronize(), with deepspeed (stages 0 to 2) the whole reduction, of which nothing is hidden; so
compare whole steps between frameworks. Each part is its median over the steps and workers after
warm-up, and of that the median over repeats. Dots are single runs, lines at the ends of bars 95 %
intervals.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.core.step_rows import STEP_PARTS
from ddlbench.show.figure_data import finished
from ddlbench.show.figures import Options, Tables, _bars

PARTS = {name: part.word for name, part in STEP_PARTS.items()}
TABLES = ("runs", "step_times")
SPREAD = ["step_p5_s", "step_p95_s"]


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per run: the median of each part of a step, and the 5 % shortest and longest
    steps [s].
    """
    table = finished(tables, "step_times", ["framework", "workers", *_bars.OTHERS, *SPREAD])
    return table[[*_bars.NAMES, *PARTS, *SPREAD]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per loader, model, batch, ...; one bar per framework and worker count."""
    milliseconds = data.assign(**{part: 1e3 * data[part] for part in [*PARTS, *SPREAD]})
    figure, panels = _bars.stacks(milliseconds, PARTS, options)
    for axes, rows in panels:
        _bars.whiskers(axes, rows, *SPREAD)
        if (unknown := rows["communication_s"].isna()).any():
            figure.note(
                "At a question mark communication was not measured; it is within the other parts."
            )
            _bars.label_bars(axes, rows, ["?" if missing else "" for missing in unknown])
            _bars.explain_unknown(axes, "communication not measured")
    return _bars.finished(figure, "median step [ms]", options, PARTS, panels)
