"""What the maps share: a cell per setting (model, and data set with recipe), with what a framework
changes there.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, LogLocator, StrMethodFormatter

from ddlbench.analysis import together
from ddlbench.analysis.significance import CANNOT_TELL, Comparison, control_false_discoveries
from ddlbench.core.roles import AXIS, SETTING, SIZE
from ddlbench.show.figure_data import distinguishing
from ddlbench.show.figures import Options, Tables, _style

BASE = "ddp"  # what the others are compared with; where it is not shown, the first by name
CELL = ("model", "image_size", "dataset", "recipes")
OTHERS = together.with_roles(  # panels, where they tell cells apart
    *(SETTING, AXIS, SIZE),
    without=("machine", "dataset", "model", "recipe", "framework", "options"),
    first=("workers", "loader", "form", "schedule", "of_epochs"),
)
COLUMNS = (
    *CELL,
    "framework",
    "base",
    *OTHERS,
    "flops_per_image",
    "repeats",
    "value",
    "low",
    "high",
    "told",
)
# white where nothing changes; numbers and ends of the scale distinguish the sides in grey
COLOURS = "RdBu"
MISSING: dict[str, Any] = {"facecolor": "white", "edgecolor": "0.5", "hatch": "xxxx"}
CELL_WIDTH, CELL_HEIGHT = 1.15, 0.44  # inches: a bold interval
Compare = Callable[[Mapping[Any, float], Mapping[Any, float]], Comparison]


def data(tables: Tables, column: str, compare: Compare, same: float = 1.0) -> pd.DataFrame:
    """Return one row per setting and framework other than the baseline, in COLUMNS.

    `compare` is given a column of runs by repeat, of the framework and of the baseline, and gives
    `same` where both are equal. `told` is whether the two differ significantly, all rows judged at
    once. A recipe whose name ends with the size of its pictures is the one without that ending
    (`recipes`).
    """
    runs = together.usable(tables["runs"])
    runs = runs[runs[column].notna()]
    names, sizes = runs["recipe"].astype(str), runs["image_size"].astype(str)
    runs = runs.assign(recipes=[n.removesuffix(f"-{s}") for n, s in zip(names, sizes, strict=True)])
    frameworks = sorted(set(runs["framework"]))
    base = BASE if BASE in frameworks else next(iter(frameworks), BASE)
    rows: list[dict[str, Any]] = []
    apart: list[Comparison] = []
    for settings, alike in runs.groupby([*CELL, *OTHERS], dropna=False):
        sides = {
            str(name): together.by_repeat(side, column) for name, side in alike.groupby("framework")
        }
        shared = dict(zip((*CELL, *OTHERS), settings, strict=True))
        shared |= {"base": base, "flops_per_image": float(alike["flops_per_image"].median())}
        for name in sorted(sides.keys() - {base}) if base in sides else ():
            rows.append(shared | {"framework": name})
            apart.append(compare(sides[name], sides[base]))
    for row, ratio in zip(rows, control_false_discoveries(apart, same=same), strict=True):
        row |= {"repeats": ratio.n, "value": ratio.middle, "low": ratio.low, "high": ratio.high}
        row |= {"told": ratio.verdict != CANNOT_TELL}
    return pd.DataFrame(rows, columns=list(COLUMNS))


def draw(
    table: pd.DataFrame, options: Options, scale: Normalize, number: str, label: str, what: str
) -> _style.Drawing:
    """Draw one panel per framework and worker count; a row of cells per model, those with the
    fewest operations above.

    `scale` is that of the colours; `number` is how a cell's value is written. `what` names the
    value in the caption.
    """
    import seaborn

    by = distinguishing(table, list(CELL), ("framework", *OTHERS))
    at = ["dataset", "recipes"] if table["dataset"].nunique() > 1 else ["recipes"]
    table = table.assign(column=["\n".join(names) for names in table[at].to_numpy()])
    figure, panels = _style.panels(table, by, options)
    flops = table.groupby("model")["flops_per_image"].median().sort_values(kind="stable")
    as_written = EngFormatter(sep="").format_eng  # operations of one picture, forward and backward
    models = [
        f"{model}, {'?' if pd.isna(n) else as_written(float(f'{n:.3g}'))}"
        for model, n in flops.items()
    ]
    columns = sorted(set(table["column"]))
    for axes, rows in panels:
        rows = rows.assign(says=[_cell_text(row, number) for row in rows.to_dict("records")])
        values, says, decided = (
            rows.pivot(index="model", columns="column", values=name).reindex(
                flops.index, columns=columns
            )
            for name in ("value", "says", "told")
        )
        axes.patch.set(**MISSING)  # is seen where there is no cell
        look: dict[str, Any] = {
            "cmap": COLOURS,
            "norm": scale,
            "linewidths": 1,
            "annot_kws": {"size": _style.SMALL},
        }
        seaborn.heatmap(values, annot=says, fmt="", cbar=False, ax=axes, yticklabels=models, **look)
        axes.set_ylabel("")
        axes.tick_params(
            axis="y", labelrotation=0
        )  # seaborn turns them by the size that the figure has so far
        axes.set_xticks(axes.get_xticks(), columns, rotation=60, ha="right", rotation_mode="anchor")
        for text, apart in zip(axes.texts, decided.stack().dropna(), strict=True):
            text.set_fontweight("bold" if apart else "normal")
    _style.labels(figure, "data set, recipe" if at[1:] else "recipe", "model, operations per image")
    if not panels:
        return figure
    spec, cells = (
        _style.grid(figure.axes[0]),
        (CELL_WIDTH * len(columns), CELL_HEIGHT * len(models)),
    )
    width, height = 3.4 + spec.ncols * (0.3 + cells[0]), 2.7 + spec.nrows * (0.6 + cells[1])
    figure.set_size_inches(max(_style.WIDTH, width), max(4.0, height))
    bar = figure.colorbar(
        ScalarMappable(scale, COLOURS), ax=[axes for axes, _ in panels], shrink=0.8, pad=0.02
    )
    bar.ax.set_gid("colours")  # the page keeps them in the dark
    bar.set_label(label)
    if isinstance(scale, LogNorm):
        bar.locator, bar.formatter = LogLocator(2), StrMethodFormatter("{x:.3g}")
        if (most := float(scale.vmax or 1)) < 2:  # no other power of 2 lies on it
            bar.set_ticks([1 / most, 1, most])
    bar.minorticks_off()
    n = sorted({int(n) for n in table["repeats"]})
    below = f"below: 95 % confidence interval, n = {n[0]}" + (f" to {n[-1]}" if n[1:] else "")
    handles = [Patch(**MISSING, label="not run, or failed")]
    for word in (
        below if n[-1] > 1 else "n = 1: one pair of runs",
        "bold: significant, all cells judged at once",
    ):
        handles.append(Patch(alpha=0, label=word))
    figure.legend(handles=handles, loc="outside lower left", frameon=False, handlelength=1.6)
    names = [", ".join(row) for row in table[["framework", "model", *at]].to_numpy()]
    ranked = _style.ranked(dict(zip(names, table["value"], strict=True)), "")
    figure.result = (
        f"{what}, medians: {ranked}; {table['told'].sum()} of {len(table)} differ significantly."
    )
    return figure


def _cell_text(row: Mapping[Any, Any], number: str) -> str:
    """Format the text of a cell: the value and, of several repeats, its confidence interval."""
    value, low, high = (number.format(row[name]) for name in ("value", "low", "high"))
    return value if pd.isna(row["low"]) else f"{value}\n{low} to {high}"
