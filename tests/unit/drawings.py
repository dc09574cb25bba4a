"""Figures drawn of tables made by hand, and what stands in them."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from ddlbench.core import registry
from ddlbench.settings.config import CONFIG
from ddlbench.show import figure_data
from ddlbench.show.figures import FigureMember, Options, Tables
from matplotlib.axes import Axes
from matplotlib.figure import Figure

OPTIONS = Options(title="How it scales", device="cpu", device_name="CPU core")

REFERENCE = pd.read_csv(CONFIG / "references/aach2023.csv")

KERNELS = pd.read_csv(CONFIG / "references/aach2023-kernels.csv")

FIGURES = registry.members("figures")


NOTHING = dict.fromkeys(("parameters_bytes", "gradients_bytes", "optimizer_bytes"))


def draw(plot: str, shown: Tables, options: Options = OPTIONS) -> Figure:
    """As the workflow does: the data into a file, the picture from the file."""
    member: FigureMember = registry.member("figures", plot)
    options = replace(options, frameworks=tuple(sorted(set(shown["runs"]["framework"]))))
    with TemporaryDirectory() as folder:
        path = Path(folder, "figure.csv")
        figure_data.write(member.data({name: shown[name] for name in member.TABLES}, options), path)
        figure = member.draw(figure_data.read(path), options)
    figure.draw_without_rendering()
    return figure


def lines(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """The points of each line of a panel by label."""
    drawn = {
        str(line.get_label()): [tuple(p) for p in line.get_xydata()] for line in axes.get_lines()
    }
    return {
        label: points for label, points in drawn.items() if points and not label.startswith("_")
    }


def legend(figure: Figure) -> list[str]:
    return [text for text in said(figure) if not text.startswith("n = ")]


def said(figure: Figure) -> list[str]:
    """The whole legend: also of how many repeats points are, and what bars are."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def bars(axes: Axes) -> dict[str, list[float]]:
    """The ends of a panel's bars from inside out by their names; parts of no length left out."""
    places = {
        place: label.get_text()
        for place, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
    }
    found: dict[str, list[float]] = {}
    for patch in axes.patches:
        if patch.get_width():
            name = places[patch.get_y() + patch.get_height() / 2]
            found.setdefault(name, []).append(round(patch.get_x() + patch.get_width(), 6))
    return found
