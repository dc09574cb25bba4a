"""Memory of the worker that needed most: its part of the parameters, gradients and optimizer state,
and what else it took at its peak. On GPUs that is the most that tensors took in training,
activations included. On CPUs it is the most that the whole process took; most of it is PyTorch
itself and the loader's buffers. Numbers are the peak and, of it, the state (parameters, gradients,
optimizer). The size of the gradients is computed from that of the model; of a user's program it is
what that says. Bars are medians, dots single runs.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.analysis.together import usable
from ddlbench.core.formatting import memory_unit, rounded
from ddlbench.show.figures import Options, Tables, _bars

PARTS = {
    "parameters_bytes": "parameters",
    "gradients_bytes": "gradients (computed)",
    "optimizer_bytes": "optimizer state",
}
REST = {"cuda": "the rest at the peak", "cpu": "the rest of the process"}
PEAKS = {"cuda": "peak_device_memory_bytes", "cpu": "peak_resident_bytes"}
TABLES = ("runs",)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per run: the parts and the peak [bytes]."""
    runs, peak = usable(tables["runs"]), PEAKS[options.device]
    runs = runs[runs[[*PARTS, peak]].notna().any(axis=1)]
    return runs[[*_bars.NAMES, *PARTS, peak]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per model, loader, ...; one bar per framework (or variant) and worker count,
    all on one scale.
    """
    peak = PEAKS[options.device]
    table = data.assign(**{column: data[column].astype("float64") for column in (*PARTS, peak)})
    state = table[list(PARTS)].sum(axis=1)
    most = table[peak].fillna(state).max() if len(table) else 0.0
    unit, size = memory_unit(most)
    table[[*PARTS, peak]] /= size
    table["rest"] = (table[peak] - state / size).clip(lower=0.0)
    parts = PARTS | {"rest": REST[options.device]}
    figure, panels = _bars.stacks(
        table, parts, options, fills=(*_bars.FILLS[:3], ("white", "")), across=1
    )
    for axes, rows in panels:
        held = zip(rows[peak], rows[list(PARTS)].sum(axis=1), strict=True)
        words = [
            f"{rounded(size, 3)} {unit}, state {rounded(state, 2)}" if size > 0 else ""
            for size, state in held
        ]
        _bars.label_bars(axes, rows, words)
    return _bars.finished(figure, f"memory [{unit}]", options, parts, panels)
