"""Make a figure by hand: its data from a study's tables, or its picture from its data.

python -m ddlbench.show.figures data PLOT --tables results/STUDY/tables --out FIGURE.csv [--runs ID ...]
python -m ddlbench.show.figures draw PLOT --data FIGURE.csv --out FIGURE [--title TEXT ...]
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis.scaling import TIMES
from ddlbench.analysis.together import is_control
from ddlbench.core import registry
from ddlbench.show.figures import FigureMember, Options, _style, _tables


def write_data(plot: str, tables: Path, runs: Sequence[str], out: Path, options: Options) -> None:
    """Make the data of a figure of these runs (ids) from the tables in a folder, and write it to the csv file `out`."""
    member: FigureMember = registry.member("figures", plot)
    _tables.write(member.data(_tables.load(tables, member.TABLES, runs), options), out)


def selected(tables: Path, select: Sequence[tuple[str, Sequence[Any]]] = ()) -> list[str]:
    """Ids of the runs in a folder of tables that have one of the selected values in each column; no control runs."""
    runs = pd.read_parquet(tables / "runs.parquet")
    runs = runs[~is_control(runs)]
    for column, values in select:
        runs = runs[runs[column].isin(values)]
    return [str(run) for run in runs["run"]]


def draw(plot: str, data: Path, out: Path, options: Options, broken: Sequence[str] = ()) -> None:
    """Draw a figure from its csv file: `<out>.png`, `.svg`, `.pdf`; `broken` are rules of the audit to name on it."""
    member: FigureMember = registry.member("figures", plot)
    title, device_name = (text.replace("$", r"\$") for text in (options.title, options.device_name))  # no formulas
    picture = member.draw(_tables.read(data), replace(options, title=title, device_name=device_name))
    if broken:
        _style.stamp(picture, broken)
    _style.save(picture, out, _style.caption(picture, registry.docstring("figures", plot)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("data", "draw"):
        subcommand = commands.add_parser(command)
        subcommand.add_argument("plot", choices=registry.members("figures"))
        subcommand.add_argument(
            "--out", type=Path, required=True, help="the csv file; of `draw`, the path without suffix"
        )
        subcommand.add_argument(
            "--device", default="cpu", choices=("cpu", "cuda", "accelerator"), help="what a worker's device is"
        )
        subcommand.add_argument("--target", type=float, help="top-1 accuracy, of the time to accuracy")
        subcommand.add_argument("--basis", default="steps", choices=tuple(TIMES), help="of speed-up and efficiency")
        if command == "data":
            subcommand.add_argument(
                "--tables", type=Path, required=True, help="folder of runs.parquet, epochs.parquet, ..."
            )
            subcommand.add_argument("--runs", nargs="*", help="run ids; left out, all but control runs")
        else:
            subcommand.add_argument("--data", type=Path, required=True, help="the figure's csv file")
            subcommand.add_argument("--title", default="")
            subcommand.add_argument("--device-name", default="CPU core")
            subcommand.add_argument("--reference", type=Path, help="csv file of published numbers")
    given = parser.parse_args()
    if given.command == "data":
        runs = given.runs
        if runs is None:
            runs = selected(given.tables)
        options = Options("", given.device, "", basis=given.basis, target=given.target)
        write_data(given.plot, given.tables, runs, given.out, options)
        return
    reference = pd.read_csv(given.reference) if given.reference else None
    data = _tables.read(given.data)
    frameworks = tuple(data["framework"].unique()) if "framework" in data else ()
    options = Options(given.title, given.device, given.device_name, frameworks, reference, given.basis, given.target)
    draw(given.plot, given.data, given.out, options)


if __name__ == "__main__":
    main()
