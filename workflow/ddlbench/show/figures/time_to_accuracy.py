"""Time to accuracy over the number of workers, both axes logarithmic: from the start of the training, with validation,
to the end of the first validation with the accuracy that the axis names. Without such an accuracy it is the time of
the whole training. Runs that did not reach it are left out. The dotted grey line is ideal: twice the workers, half the
time. Points are medians over n repeats; bars with caps are their 95 % intervals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ddlbench.show.figures import Options, Tables

TABLES = ("runs", "epochs")
PUBLISHED: tuple[str, ...] = ()
SETTINGS = ("target",)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per series of runs and worker count: `reached_s`, and its interval."""
    import pandas as pd

    from ddlbench.analysis.scaling import in_series
    from ddlbench.analysis.statistics import over_repeats
    from ddlbench.analysis.together import BATCH, SERIES, finished

    runs = tables["runs"]
    runs = in_series(finished(runs))
    reached = runs["full_train_s"]
    if options.target is not None:
        epochs = tables["epochs"]
        first = epochs[epochs["top1"] >= options.target].groupby("run")["validated_s"].min()
        reached = runs["run"].map(first).astype("float64")
    rows = []
    timed = runs.assign(reached_s=reached)[reached.notna()]
    for _, some in timed.groupby([*SERIES, "workers"], dropna=False):
        interval = over_repeats(some["reached_s"].tolist())
        rows.append(
            {key: some[key].iloc[0] for key in (*SERIES, "workers")}
            | {"repeats": len(some), "reached_s": interval.middle}
            | {"reached_s_low": interval.low, "reached_s_high": interval.high}
        )
    names = [*SERIES, "workers", "repeats", "reached_s", "reached_s_low", "reached_s_high"]
    return pd.DataFrame(rows, columns=names).astype(dict.fromkeys(BATCH, "Int64"))


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draws one panel per model and batch."""
    from ddlbench.show.figures import _scaling, _style

    data[["spread_low", "spread_high"]] = float("nan")
    figure, panels = _scaling.panels(data, options)
    counts = sorted({count for _, rows in panels for count in rows["workers"]})
    for axes, rows in panels:
        _scaling.lines(axes, rows, "reached_s")
        least = rows[rows["workers"] == rows["workers"].min()]["reached_s"].min()
        if len(counts) > 1:
            ideal = [least * rows["workers"].min() / count for count in counts]
            axes.plot(counts, ideal, label="ideal", **_style.IDEAL)
    _style.count_axis(figure, counts)
    _style.log_y(figure)
    what = "time of the training" if options.target is None else f"time to {options.target:.1%} accuracy"
    _style.labels(figure, _style.worker_label(options), f"{what} [s]")
    _style.legend(figure)
    return figure
