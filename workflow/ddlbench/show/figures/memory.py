"""Memory of the worker that needed most, in MiB: its part of the parameters, gradients and optimizer state. On GPUs a
colourless diamond is the most that tensors took during training, activations included. On CPUs the number beside a bar
is the most that the whole process took; most of that is PyTorch itself and the loader's buffers.
"""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.analysis.together import finished
from ddlbench.show.figures import Options, Tables, _bars, _style

PARTS = {"parameters_bytes": "parameters", "gradients_bytes": "gradients", "optimizer_bytes": "optimizer state"}
PEAKS = {"cuda": "peak_device_memory_bytes", "cpu": "peak_resident_bytes"}
TABLES = ("runs",)
MIB = 2**20


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per run: the parts and the peak [bytes]."""
    runs, peak = finished(tables["runs"]), PEAKS[options.device]
    runs = runs[runs[[*PARTS, peak]].notna().any(axis=1)]
    return runs[[*_bars.NAMES, *PARTS, peak]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel per model, loader, ...; one bar per framework (or variant) and worker count."""
    peak = PEAKS[options.device]
    table = data.assign(**{column: data[column].astype("float64") / MIB for column in (*PARTS, peak)})
    figure, panels = _bars.stacks(table, PARTS, options)
    for axes, rows in panels:
        if options.device == "cuda":
            look: dict[str, Any] = {"color": "black", "marker": "D", "markersize": 4.5, "linestyle": "none"}
            axes.plot(rows[peak], rows["bar"], label="most on the GPU", **look)
            right = 1.05 * rows[peak].fillna(0.0).max()
        else:
            ends = rows[list(PARTS)].sum(axis=1)
            for end, place, most in zip(ends, rows["bar"], rows[peak], strict=True):
                if most == most:  # measured
                    _style.beside(axes, f"process {most:,.0f}", end, place, fontsize="small")
            right = 1.7 * ends.max()
        _bars.reach(axes, right)
    return _bars.finished(figure, "memory [MiB]", options)
