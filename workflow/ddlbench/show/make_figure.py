"""A figure from tables to files: its data, then its picture from its data."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis import refusals
from ddlbench.core import registry
from ddlbench.show import figure_data
from ddlbench.show.figures import FigureMember, Options, _style


def write_data(plot: str, tables: Path, runs: Sequence[str], out: Path, options: Options) -> None:
    """Make the data of a figure of these runs (ids) from the tables in a folder, and write it to
    the csv file `out`.
    """
    member: FigureMember = registry.member("figures", plot)
    figure_data.write(member.data(figure_data.load(tables, member.TABLES, runs), options), out)


def write_drawable(
    plot: str, tables: Path, runs: Sequence[str], out: Path, options: Options
) -> pd.DataFrame:
    """Write the data of a figure, as `write_data` does, of those runs with which it can be drawn.

    Returns what `figure_data.shown` says of all of them; runs that had to be left out are refused
    there. Their errors are printed.
    """
    member: FigureMember = registry.member("figures", plot)

    def step(some: Sequence[str], _: refusals.Spoilers[str]) -> None:
        write_data(plot, tables, some, out, options)
        member.draw(figure_data.read(out), options)

    _, spoilers = refusals.sparing(runs, step)
    for run, error in spoilers.items():
        print(
            f"{run} is refused and not in this figure:"
            f" {refusals.not_understood(Path(run), error).what}"
        )
    shown = figure_data.shown(tables, runs)
    return shown.assign(status=shown["status"].mask(shown["run"].isin([*spoilers]), "refused"))


def selected(tables: Path, select: Sequence[tuple[str, Sequence[Any]]] = ()) -> list[str]:
    """Return the ids of the runs in a folder of tables that have one of the selected values in each
    column.
    """
    runs = pd.read_parquet(tables / "runs.parquet")
    for column, values in select:
        runs = runs[runs[column].isin(values)]
    return [str(run) for run in runs["run"]]


def draw(plot: str, data: Path, out: Path, options: Options) -> None:
    """Draw a figure from its csv file: `<out>.png`, `.svg`, `.pdf`."""
    member: FigureMember = registry.member("figures", plot)
    # No formulas.
    texts = {
        name: getattr(options, name).replace("$", r"\$")
        for name in ("title", "device_name", "about")
    }
    picture = member.draw(figure_data.read(data), replace(options, **texts))
    _style.save(
        picture,
        out,
        _style.caption(picture, registry.docstring("figures", plot), options.device),
        texts["about"],
    )
