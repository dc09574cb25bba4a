"""Time from the start of the training, with validation, to the end of the first validation with the
accuracy that the axis names, or to the end of the training; both axes logarithmic. Runs that
reached it are shown. Along the dotted grey line twice the workers need half the time. Points are
medians, dots single runs, bars with caps 95 % intervals.
"""

import json

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.analysis.intervals import over_repeats
from ddlbench.analysis.scaling import in_series
from ddlbench.analysis.together import BATCH, SERIES, usable
from ddlbench.show.figures import Options, Tables, _scaling

TABLES = ("runs", "epochs", "validations")
SETTINGS = ("target",)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per series of runs and worker count: `reached_s`, and its confidence
    interval.
    """
    runs = in_series(usable(tables["runs"]))
    reached = runs["full_train_s"]
    if options.target is not None:
        columns = ["run", "top1", "validated_s"]
        validated = pd.concat([tables["epochs"][columns], tables["validations"][columns]])
        first = validated[validated["top1"] >= options.target].groupby("run")["validated_s"].min()
        reached = runs["run"].map(first).astype("float64")
    rows = []
    timed = runs.assign(reached_s=reached)[reached.notna()]
    keys = [*SERIES, "workers"]
    for _, repeats in timed.groupby(keys, dropna=False):
        interval = over_repeats(repeats["reached_s"].tolist())
        rows.append(
            [*repeats[keys].iloc[0], len(repeats), interval.middle, interval.low, interval.high]
        )
        rows[-1] += [json.dumps(repeats[name].tolist()) for name in ("reached_s", "run")]
    columns = [*keys, "repeats", "reached_s", "reached_s_low", "reached_s_high", "each", "runs"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(BATCH, "Int64"))


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per model and batch."""
    data[["spread_low", "spread_high"]] = float("nan")
    what = (
        "time of the training"
        if options.target is None
        else f"time to {100 * options.target:.3g} % top-1 accuracy"
    )
    return _scaling.draw(data, options, "reached_s", f"{what} [s]")
