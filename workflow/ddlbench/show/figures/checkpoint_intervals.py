"""Expected loss by interruptions over the interval between checkpoints, in percent of the training:
time for checkpoints, restarts, and work that is made again (Daly 2006,
doi:10.1016/j.future.2004.11.016). One line per worker count. Diamonds are Daly's best interval,
crosses Young's (1974, doi:10.1145/361147.361115), the vertical line is the chosen one. What a
checkpoint and a restart take was measured on interrupted runs of the same settings; how often nodes
are interrupted is what the machine's file says.
"""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.analysis.sheets.costs import CHOSEN, DALY, YOUNG
from ddlbench.core.formatting import count_of, worker
from ddlbench.show.figure_data import distinguishing
from ddlbench.show.figures import Options, Tables, _bars, _looks, _style

TABLES = ("costs",)
MACHINE = ("terms",)
BEST: dict[str, Any] = {
    "linestyle": "none",
    "color": "black",
    "markerfacecolor": "white",
    "markersize": 7,
    "zorder": 5,
}
MEASURES = (
    "interval",
    "interval_s",
    "loss_percent",
    "checkpoint_s",
    "restart_s",
    "between_s",
    "n",
    "why",
)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per setting and interval: the loss [%], and what it was computed from."""
    return tables["costs"][[*_bars.NAMES, *MEASURES]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per framework, model, loader, ...; one line per worker count."""
    sure = data[data["loss_percent"].notna()]
    sure = sure.assign(batch_per_worker=sure["global_batch"] // sure["workers"])
    counts = sorted(set(data["workers"]))
    others = ["batch_per_worker" if name == "global_batch" else name for name in _bars.OTHERS]
    by = distinguishing(sure, ["workers", "interval", "interval_s"], ["framework", *others])
    figure, panels = _style.panels(sure, by, options)
    if not panels and len(data):
        for text in figure.axes[0].texts:
            text.set_text("\n".join(sorted(set(data["why"].dropna()))))
            text.set_wrap(True)
        return figure
    unit = worker(options.device)
    for axes, rows in panels:
        for workers in sorted(set(rows["workers"])):
            line = rows[rows["workers"] == workers]
            style = _looks.nth_style(counts.index(workers))
            curve = line[line["interval"].isna()].sort_values("interval_s")
            plain = {"color": style["color"], "linestyle": style["linestyle"], "linewidth": 1.8}
            axes.plot(
                curve["interval_s"] / 60,
                curve["loss_percent"],
                label=count_of(workers, unit),
                **plain,
            )
            for name, marker in ((DALY, "D"), (YOUNG, "+")):
                best = line[line["interval"] == name]
                axes.plot(
                    best["interval_s"] / 60,
                    best["loss_percent"],
                    marker=marker,
                    **BEST,
                    label=f"{name}'s best",
                )
        for chosen in sorted(set(rows.loc[rows["interval"] == CHOSEN, "interval_s"].dropna())):
            axes.axvline(
                chosen / 60,
                **_style.IDEAL | {"linestyle": "--"},
                label=f"chosen: {chosen / 60:g} min",
            )
    _style.logarithmic(figure, "x")
    _style.logarithmic(figure)
    chosen = sure[sure["interval"] == CHOSEN]
    loss = {
        count_of(int(str(n)), unit): rows.median()
        for n, rows in chosen.groupby("workers")["loss_percent"]
    }
    result = f"Expected loss with the chosen interval: {_style.ranked(loss, '%')}." if loss else ""
    return _style.finished(
        figure, "interval between checkpoints [min]", "expected loss [%]", result
    )
