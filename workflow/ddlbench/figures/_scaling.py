"""What the figures over worker counts share: their data, panels, and one line per framework and loader in each."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddlbench.analysis.scaling import SERIES, scaling
from ddlbench.figures import Options, Tables, _style
from ddlbench.figures._tables import distinguishing, references

# What a measure of scaling is of, by the basis that a study names.
OF = {"steps": "training steps", "run": "the whole training"}


def data(tables: Tables, options: Options, measure: str, name: str) -> pd.DataFrame:
    """Rows of `scaling` with one measure: `measure`, and `<name>_min` and `<name>_max` over repeats."""
    table = scaling(tables["runs"], options.basis)
    return table[[*SERIES, "workers", "ref_workers", "repeats", measure, f"{name}_min", f"{name}_max"]]


def panels(table: pd.DataFrame, options: Options) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """A figure and its panels with their rows of `table` (see `data`), which also have `line` (its label) and `style`.

    There is one line per framework and loader, and one panel per model, batch, ...; where there are several frameworks
    and several loaders, also per loader. With only one framework and loader, there is one line per model, batch, ...
    Lines of runs that trained only some of their epochs say so.
    """
    table = table.copy()
    members = ["framework", "loader"]
    by = distinguishing(table, [*members, "workers"], [key for key in SERIES if key not in members])
    if by and len(table[members].drop_duplicates()) == 1:
        line = by.pop(0)
        values = sorted(table[line].unique(), key=lambda value: (len(str(value)), value))  # resnet50, resnet101
        table = table.sort_values(line, key=lambda column: column.map(values.index), kind="stable")
        table["line"] = [_style.title(line, value) for value in table[line]]
        styles = [_style.nth_style(values.index(value)) for value in table[line]]
    else:
        pairs = list(zip(table["framework"], table["loader"], strict=True))
        table["line"] = [", ".join(pair) for pair in pairs]
        styles = [_style.member_style(*pair, options.frameworks) for pair in pairs]
        if (table[members].nunique() > 1).all():
            by.append("loader")
    table["style"] = pd.Series(styles, index=table.index, dtype="object")
    part = table["epochs"] < table["of_epochs"]
    table["line"] = [f"{line} (extrapolated)" if some else line for line, some in zip(table["line"], part, strict=True)]
    return _style.panels(table, by, options)


def lines(axes: Axes, rows: pd.DataFrame, measure: str, name: str) -> None:
    """The lines through the means of a measure, with bars from the lowest to the highest repeat.

    The columns are `measure`, `<name>_min` and `<name>_max`.
    """
    for label, points in rows.groupby("line", sort=False):
        style = points["style"].iloc[0]
        axes.plot(points["workers"], points[measure], label=label, **style)
        _style.bars(axes, points["workers"], points[measure], points[f"{name}_min"], points[f"{name}_max"], style)


def published(panels: list[tuple[Axes, pd.DataFrame]], quantity: str, options: Options) -> set[int]:
    """Draw the published numbers of a quantity in each panel that they fit; the worker counts that they are at."""
    counts: set[int] = set()
    for axes, rows in panels:
        points = references(options, quantity, rows.drop(columns="schedule"))
        if not points.empty:
            _style.reference_points(axes, points, "workers")
            counts |= set(points["workers"])
    return counts
