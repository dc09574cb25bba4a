"""Floating-point operations of a forward pass over one picture, module by module: as DeepSpeed's
profiler counts them and as PyTorch's own counter does. A multiplication and an addition are two
operations. The first bars are the whole model. The top levels are shown, so that labels stay
readable; modules without operations are left out.
"""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.show.figures import Options, Tables, _bars, _style

TABLES = ("operations",)
COUNTERS = {
    "deepspeed_flops_per_image": "DeepSpeed's profiler",
    "torch_flops_per_image": "PyTorch's counter",
}
THEIRS = "published_flops_per_image"
MOST = 20  # modules of a panel, besides the complete model


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per run and module that is shown, in the model's order."""
    table = tables["operations"]
    shown = [of_run[shown_modules(of_run)] for _, of_run in table.groupby("run", sort=True)]
    columns = ["run", "model", "image_size", "module", "depth", *COUNTERS, THEIRS, "published_by"]
    return pd.concat(shown)[columns].reset_index(drop=True) if shown else table[columns]


def shown_modules(table: pd.DataFrame) -> "pd.Series[bool]":
    """Select the complete model and the modules that divide it, of one run's modules: those at a
    depth, or less deep ones without parts.
    """
    counted = (table[list(COUNTERS)].fillna(0) > 0).any(axis=1)
    inner = {name.rpartition(".")[0] for name in table["module"]}
    whole = table["depth"] == 0
    chosen = whole
    for depth in range(1, int(table["depth"].max()) + 1):
        leaf = ~table["module"].isin(inner) & ~whole
        cut = counted & ((table["depth"] == depth) | (leaf & (table["depth"] < depth)))
        if cut.sum() > MOST:
            break
        chosen = whole | cut
    return chosen


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per model and size of pictures; two bars per module.

    Runs of one model count the same: one is shown.
    """
    data = data[data["run"].isin(data.groupby(["model", "image_size"])["run"].first())]
    by = ["model", "image_size"] if data["image_size"].nunique() > 1 else ["model"]
    figure, panels = _style.panels(
        data, [] if data.empty else by, options, share_y=False, share_x=False, across=1
    )
    for axes, rows in panels:
        places = range(len(rows))
        for number, (column, label) in enumerate(COUNTERS.items()):
            colour, hatch = _bars.FILLS[2 * number]
            middles, ends = (
                [place + 0.4 * (number - 0.5) for place in places],
                rows[column].fillna(0.0) / 1e6,
            )
            axes.barh(
                middles,
                ends.astype("float64"),
                0.4,
                label=label,
                color=colour,
                hatch=hatch,
                **_bars.EDGE,
            )
        published = [
            (value / 1e6, place) for place, value in enumerate(rows[THEIRS]) if not pd.isna(value)
        ]
        if published:
            look: dict[str, Any] = {"marker": "D", "linestyle": "none", "zorder": 4}
            look |= {"markerfacecolor": "white", "markeredgecolor": "black"}
            figure.note(
                "A diamond is the published count of the whole model"
                " (config/references/operations.csv)."
            )
            axes.plot(*zip(*published, strict=True), label="published: whole model", **look)
        axes.set_yticks(list(places), rows["module"])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(False, axis="y")
    if panels:
        _style.set_heights(figure, [len(rows) + 0.2 for _, rows in panels], 0.27)
    models = (
        data[data["depth"] == 0]
        .drop_duplicates("model")
        .set_index("model")[[*COUNTERS]]
        .max(axis=1)
        / 1e6
    )
    result = (
        f"Operations of whole models: {_style.ranked(models.to_dict(), 'million per picture')}."
        if panels
        else ""
    )
    return _style.finished(figure, "operations per picture [million]", "module", result)
