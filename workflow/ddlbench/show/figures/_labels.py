"""Texts beside points, moved so that none lies on another."""

from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

ASIDE, LINE = 6.0, 11.0  # of a published point its label, and of a label the next one [points]
MOST_LINES = 6  # by which a label may be moved


def label_point(axes: Axes, text: str, x: Any, y: Any, aside: float = 4, **look: Any) -> Annotation:
    """Write a text so many points beside a place."""
    return axes.annotate(text, (x, y), (aside, 0), textcoords="offset points", va="center", **look)


def separate_labels(figure: Figure, labels: Sequence[Annotation]) -> None:
    """Move labels of published points that would lie on one another or on such a point: to the
    other side, or some lines up or down, then with a thin line to their point. Where nothing is
    free, a label stays.
    """
    if not labels:
        return
    figure.draw_without_rendering()
    placed = [_marker(label) for label in labels]
    for label in (label for label in labels if label.get_text()):
        places = [*_around()]
        free = next(
            (place for place in places if _is_free(figure, label, place, placed)), places[0]
        )
        _put(label, free)
        if free[1]:
            axes = label.axes
            assert isinstance(axes, Axes)
            line = {"arrowstyle": "-", "linewidth": 0.5, "color": "0.4", "shrinkA": 0, "shrinkB": 2}
            axes.annotate(
                "", label.xy, free, textcoords="offset points", arrowprops=line, zorder=3.8
            )
        placed.append(label.get_window_extent())


def _marker(label: Annotation) -> Bbox:
    """Return where a label's point is drawn [pixels]."""
    assert label.axes is not None and label.figure is not None
    x, y = label.axes.transData.transform(label.xy)
    half = (ASIDE - 2) * label.figure.dpi / 72
    return Bbox.from_extents(x - half, y - half, x + half, y + half)


def _around() -> Iterator[tuple[float, float]]:
    """Where a label may be [points from its point]: left or right of it, then more and more lines
    up and down.
    """
    for lines in sorted(range(-MOST_LINES, MOST_LINES + 1), key=abs):
        yield from ((-ASIDE, lines * LINE), (ASIDE, lines * LINE))


def _put(label: Annotation, place: tuple[float, float]) -> None:
    label.xyann = place
    label.set_horizontalalignment("right" if place[0] < 0 else "left")


def _is_free(
    figure: Figure, label: Annotation, place: tuple[float, float], placed: Sequence[Bbox]
) -> bool:
    """Return whether a label would lie within the figure's sides there, and on nothing that is
    placed.
    """
    _put(label, place)
    box = label.get_window_extent()
    within = figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
    return within and not any(box.overlaps(other) for other in placed)
