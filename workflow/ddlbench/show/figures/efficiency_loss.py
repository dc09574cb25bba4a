"""Where the efficiency went. A bar is the efficiency of the whole training, and then what took the
rest: for each part the worker-seconds per image beyond those on the fewest workers. Efficiency and
parts add up to 1; a part that takes less time than on the fewest workers reaches below 0. Parts are
the times of the median worker of each step, so the cost of a slow worker is waiting. Where a
framework cannot tell waiting, transfer and compute apart, they are one part. Bars are of the total
times of all repeats.
"""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddlbench.analysis.losses import waterfall
from ddlbench.analysis.together import BATCH, title
from ddlbench.show.figures import Options, Tables, _bars, _style

TABLES = ("runs", "losses")
PARTS = {
    "efficiency": "efficiency",
    "input_s": "input",
    "waiting_s": "waiting for the slow rank",
    "transfer_s": "transfer",
    "compute_s": "slower compute",
    "together_s": "waiting, transfer, compute",
    "epochs_s": "start and end of epochs",
    "validation_s": "validation",
    "checkpoint_s": "checkpoint",
    "unexplained_s": "unexplained",
}


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per series of runs and worker count beyond the fewest
    (`analysis/losses.py`).
    """
    return waterfall(tables["runs"], tables["losses"])


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per loader, model, batch, ...; one bar per framework and worker count."""
    # A part that is nothing anywhere needs no place in the legend.
    parts = {
        name: label
        for name, label in PARTS.items()
        if data[name].abs().max() >= 0.0005 or name == "efficiency"
    }
    # The batch that a series keeps: that of a worker, or that of all. A run may be in both.
    kept = [
        title("batch_per_worker", own) if pd.isna(whole) else title("global_batch", whole)
        for own, whole in zip(data["batch_per_worker"], data["global_batch"], strict=True)
    ]
    table = data.drop(columns=["repeats", *BATCH]).assign(batch=kept)
    others = ["batch" if name == "global_batch" else name for name in _bars.OTHERS]
    figure, panels = _bars.stacks(table, parts, options, others)
    for axes, _ in panels:
        axes.axvline(1.0, **_style.IDEAL)
        axes.axvline(0.0, color="black", linewidth=0.8)
    return _bars.finished(
        figure, "share of workers' time", options, parts, panels, largest_losses(panels, parts)
    )


def largest_losses(panels: Sequence[tuple[Axes, pd.DataFrame]], parts: Mapping[str, str]) -> str:
    """Describe which parts took most of the workers' time, over all bars."""
    sums = (
        pd.concat([rows[list(parts)] for _, rows in panels]).mean()
        if panels
        else pd.Series(dtype="float64")
    )
    largest = sums.drop("efficiency").nlargest(2) if len(sums) > 1 else sums[:0]
    taken = " and ".join(
        f"{parts[str(name)]} {100 * share:.0f} %" for name, share in largest.items() if share > 0
    )
    return f"Of the workers' time, on average over the bars, {taken} went." if taken else ""
