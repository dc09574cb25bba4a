"""Inference: latency and throughput over the pictures in one request; both axes are logarithmic.
Above, the latency: a point is the median over processes of the time within which half of a
process's requests got their response, sent one at a time after warm-up; dots are single processes.
A bar reaches up to the time within which 95 % got theirs. Below, the throughput of the same
requests. A model whose layers are sliced over several workers says their number. A way to serve
that could not be measured has no marks.
"""

from math import nan
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddlbench.show.figures import Options, Tables, _looks, _style

TABLES = ("inference",)
P50, P95, RATE = "latency_p50_s", "latency_p95_s", "throughput_images_per_s"
SHOWN = [
    "run",
    "model",
    "recipe",
    "precision",
    "member",
    "workers",
    "repeat",
    "batch",
    P50,
    P95,
    RATE,
    "cpu",
    "gpu",
]


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per job and batch size, as in table `inference`; its times are null where
    nothing was measured.
    """
    table = tables["inference"][SHOWN]
    return table.sort_values(
        ["model", "recipe", "member", "workers", "batch", "repeat"]
    ).reset_index(drop=True)


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one column of panels per model and recipe; one line per way to serve and number of
    workers.
    """
    columns = ["model", "recipe"] if data["recipe"].nunique() > 1 else ["model"]
    measured = data.dropna(subset=[P50])
    groups = list(data.groupby(columns)) if len(measured) else [(("",), data)]
    figure = _style.Drawing(
        figsize=(max(_style.WIDTH, 0.8 + 2.0 * len(groups)), 6.0), layout="constrained"
    )
    figure.suptitle(options.title, wrap=True)
    if measured.empty:
        axes = figure.subplots()
        _style.write_empty(axes)
        axes.set(xlabel="pictures in a request", ylabel="latency [ms]")
        return figure
    places = figure.subplots(2, len(groups), squeeze=False, sharex=True, sharey="row")
    ways = list(dict.fromkeys(map(tuple, data[["member", "workers"]].itertuples(index=False))))
    for (names, rows), above, below in zip(groups, *places, strict=True):
        above.set_title(", ".join(map(str, names)))
        for number, (member, workers) in enumerate(ways):
            mine = rows[(rows["member"] == member) & (rows["workers"] == workers)]
            name = f"{member}, {workers} workers" if workers > 1 else str(member)
            _draw_line(above, below, mine.dropna(subset=[P50]), name, _looks.nth_style(number))
            if len(mine) and mine[P50].isna().all():
                figure.note(f"{name} of {', '.join(map(str, names))} could not be measured.")
        below.set_xlabel("pictures in a request")
    _style.count_axis(figure, measured["batch"])
    _style.logarithmic(figure)
    places[0, 0].set_ylabel("latency [ms]")
    places[1, 0].set_ylabel("throughput [images/s]")
    least = measured[measured["batch"] == measured["batch"].min()]
    p50 = 1e3 * least.groupby([*columns, "member", "workers"], sort=False)[P50].median()
    values = {", ".join(map(str, names)): value for names, value in p50.items()}
    figure.result = (
        f"Latency of {int(least['batch'].iloc[0])} at once, medians: {_style.ranked(values, 'ms')}."
    )
    n = sorted(
        {
            len(rows)
            for _, rows in measured.groupby(["model", "recipe", "member", "workers", "batch"])
        }
    )
    counts = " to ".join(map(str, sorted({n[0], n[-1]})))
    end: dict[str, Any] = {"fmt": "none", "ecolor": "black", "elinewidth": 1, "capsize": 3}
    places[0, 0].errorbar(
        [nan], [nan], [[0.0], [1.0]], **end, label=f"n = {counts}: up to 95 % of requests"
    )
    _style.legend(figure)
    figure.suptitle(
        f"{options.title}\n{_hardware(measured, options)}", wrap=True
    )  # below, the legend would hide it
    return figure


def _draw_line(
    above: Axes, below: Axes, rows: pd.DataFrame, name: str, style: dict[str, Any]
) -> None:
    """Draw the line of one way to serve, in the panel of latencies and in that of rates."""
    at = rows.assign(p50=1e3 * rows[P50], p95=1e3 * rows[P95]).groupby("batch")
    medians = at[["p50", "p95", RATE]].median()
    above.plot(medians.index, medians["p50"], label=name, **style)
    below.plot(medians.index, medians[RATE], label=name, **style)
    error_bars = (0.0 * medians["p50"], medians["p95"] - medians["p50"])
    above.errorbar(
        medians.index,
        medians["p50"],
        error_bars,
        fmt="none",
        ecolor=style["color"],
        elinewidth=1,
        capsize=3,
    )
    _style.dots(above, medians.index, at["p50"].agg(list), style)


def _hardware(rows: pd.DataFrame, options: Options) -> str:
    """Describe the devices and the precision with which inference ran."""
    names = sorted({str(name) for column in ("gpu", "cpu") for name in rows[column].dropna()})
    precisions = ", ".join(sorted({*rows["precision"]}))
    return f"{precisions}; one {options.device_name} per worker; {', '.join(names)}"
