"""What a reader sees who points at a mark of an SVG picture: the line's or bar's name and its values.

SVG has an element for that, `<title>`. matplotlib writes none, so `name` gives each line and bar an id before the file
is written, and `titled` puts the words into what was written.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from ddlbench.core.plural import rounded


def name(figure: Figure) -> dict[str, list[str]]:
    """Gives lines with markers and bars an id; what to say of each of their marks, by this id."""
    marks: dict[str, list[str]] = {}
    x, y = (_label(figure, end) for end in ("xlabel", "ylabel"))
    for axes in figure.axes:
        for line in axes.get_lines():
            label = str(line.get_label())
            points = [
                f"{label}\n{x}: {rounded(at, 4)}\n{y}: {rounded(value, 4)}"
                for at, value in np.array([line.get_xdata(), line.get_ydata()], dtype=float).T
                if math.isfinite(at + value)
            ]
            if points and not label.startswith("_") and str(line.get_marker()) not in ("", "None", "none", " "):
                line.set_gid(f"points-{len(marks)}")
                marks[f"points-{len(marks)}"] = points
        for bar, words in _bars(axes, x, y):
            bar.set_gid(f"bar-{len(marks)}")
            marks[f"bar-{len(marks)}"] = [words]
    return marks


def _bars(axes: Axes, x: str, y: str) -> Iterator[tuple[Any, str]]:
    for container in axes.containers:
        if isinstance(container, BarContainer) and not str(container.get_label()).startswith("_"):
            lying = container.orientation == "horizontal"
            for bar in container.patches:
                value = bar.get_width() if lying else bar.get_height()
                yield bar, f"{container.get_label()}\n{x if lying else y}: {rounded(value, 4)}"


def _label(figure: Figure, which: str) -> str:
    """The name of an axis, from the first panel that has it, on one line."""
    labels = [str(getattr(axes, f"get_{which}")()) for axes in figure.axes]
    labels += [figure.get_supylabel()] if which == "ylabel" else []
    return " ".join(next(filter(None, labels), which[0]).split())


def titled(svg: str, marks: Mapping[str, Sequence[str]]) -> str:
    """The text of an SVG file with a title for each mark that `name` named.

    Where a file shows another number of marks than a line has points, nobody can tell which is which: they get none.
    """
    for gid, words in marks.items():
        before, tag, after = svg.partition(f'<g id="{gid}">')
        if not tag:
            continue
        if gid.startswith("bar-"):
            svg = f"{before}{tag}<title>{escape(words[0])}</title>{after}"
            continue
        mine, next_tag, rest = after.partition('<g id="')
        pieces = mine.split("<use ")
        # Markers of two colours are two marks each, all of the one half first.
        if len(pieces) == 1 or (len(pieces) - 1) % len(words):
            continue
        for place, piece in enumerate(pieces[1:]):
            mark, _, beyond = piece.partition("/>")
            pieces[place + 1] = f"{mark}><title>{escape(words[place % len(words)])}</title></use>{beyond}"
        svg = before + tag + "<use ".join(pieces) + next_tag + rest
    return svg
