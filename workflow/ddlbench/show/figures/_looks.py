"""Who looks how: colours, markers and lines of frameworks, loaders and schedules, the same in every
study.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from ddlbench.core import registry
from ddlbench.settings.study import SCHEDULES
from ddlbench.show.figures import Options

# Colours after Paul Tol for colour-blind eyes; the first three of each are dark, middling and light
# in grey print.
COLOURS = ("#004488", "#bb5566", "#ddaa33", "#117733", "#66ccee", "#222222")
OTHER_COLOURS = ("#332288", "#aa4499", "#66bbaa", "#882255", "#88ccee", "#999933")
FILLS = ("full", "none", "right", "top", "left", "bottom")
SALT = "1721"  # with which no two names of the studies in config/ share a colour and a fill
# The places of frameworks among COLOURS and FILLS, and of both kinds of members among MARKERS and
# LINES. Any other name, also that of a new member, has a look that is made of the name alone, so
# that it changes nobody else's.
FRAMEWORKS = {"ddp": 0, "deepspeed": 1, "fsdp": 2, "horovod": 3}
LOADERS = {
    "dali-cpu": 0,
    "dali-cpu-only": 1,
    "dali-gpu": 2,
    "native": 3,
    "spdl": 4,
    "synthetic": 6,
    "torchvision": 7,
}
OTHER_FRAMEWORKS, OTHER_LOADERS = 4, 8  # the first places of names that are not listed
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*", "<", ">")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), "-.", ":", (0, (3, 1, 1, 1, 1, 1)), (0, (8, 2)))
MEMBERS = ("framework", "loader")

Style = dict[str, Any]


def member_style(framework: str, loader: str = "", shown: Iterable[str] = ()) -> Style:
    """Return how a line is drawn: the framework is colour and fill of the marker; the loader, if
    lines differ in it, is marker and line style.

    Names that are not listed, such as variants of a study (`shown` are all of its names), have the
    other colours.
    """
    if framework in FRAMEWORKS:
        f = FRAMEWORKS[framework]
        look = {"color": COLOURS[f % len(COLOURS)], "fillstyle": FILLS[f % len(FILLS)]}
    else:
        taken: list[int] = []
        for name in sorted({*shown, framework} - FRAMEWORKS.keys()):
            slot = _slot(name)
            free = {*range(len(OTHER_COLOURS))} - {number % len(OTHER_COLOURS) for number in taken}
            while slot in taken or (
                free and slot % len(OTHER_COLOURS) not in free
            ):  # a colour of its own, if there is
                slot = (slot + 1) % len(_SLOTS)
            taken.append(slot)
            if name == framework:
                break
        f = OTHER_FRAMEWORKS + taken[-1] % len(OTHER_COLOURS)
        look = dict(zip(("color", "fillstyle"), _SLOTS[taken[-1]], strict=True))
    return look | {
        "markerfacecoloralt": "white",
        **_nth(_loader(loader) if loader else f),
        **_nested(f),
    }


_SLOTS = [(colour, fill) for fill in FILLS for colour in OTHER_COLOURS]


def _slot(name: str) -> int:
    """Return the place in _SLOTS of a name that is not listed: the same in every study."""
    return int(hashlib.sha256(f"{name}{SALT}".encode()).hexdigest(), 16) % len(_SLOTS)


def _loader(name: str) -> int:
    return LOADERS[name] if name in LOADERS else OTHER_LOADERS + _slot(name) % 4


def name_lines(
    table: pd.DataFrame, by: Sequence[str], options: Options
) -> tuple[pd.DataFrame, str]:
    """Return the table with `line`, its label, and `style` per framework and loader; and what is
    the same for all lines.

    A label says what differs: neither what the panels (`by`) say nor what all lines share. Colours
    are those of frameworks, or of loaders where there is one framework.
    """
    members = [member for member in MEMBERS if member not in by]
    varies = [member for member in members if table[member].nunique() > 1]
    shared = [
        str(table[member].iloc[0]) for member in members if member not in varies and len(table)
    ]
    loaders = table["loader"] if "loader" in varies else table["loader"].map(lambda _: "")
    pairs = list(zip(table["framework"], loaders, strict=True))
    styles = [member_style(*pair, options.frameworks) for pair in pairs]
    if varies == ["loader"]:
        styles = [nth_style(_loader(loader)) for loader in loaders]
    # A program has no loader of ours.
    shared = [name for name in shared if name != registry.OWN]
    named = table[varies or members].itertuples(index=False)
    lines = [", ".join(str(name) for name in row if name != registry.OWN) for row in named]
    return styled(table, lines, styles), ", ".join(shared if varies else ())


def styled(table: pd.DataFrame, lines: Iterable[str], styles: Sequence[Style]) -> pd.DataFrame:
    """Return the table with `line`, each row's text in the legend, and `style`."""
    return table.assign(line=list(lines), style=pd.Series(list(styles), table.index, "object"))


def schedule_style(schedule: str) -> Style:
    """Return how a schedule's line is drawn."""
    return nth_style([*SCHEDULES, schedule].index(schedule))


def nth_style(n: int) -> Style:
    """Return how the n-th line is drawn, counted from 0, where lines are neither frameworks nor
    loaders.
    """
    return {"color": OTHER_COLOURS[n % len(OTHER_COLOURS)], **_nth(n), **_nested(n)}


def _nth(n: int) -> Style:
    return {"marker": MARKERS[n % len(MARKERS)], "linestyle": LINES[n % len(LINES)]}


def _nested(n: int) -> dict[str, float]:
    """Return a width for the line, thinner than the one below it, so that lines that lie on one
    another are all seen.
    """
    width = max(1.2, 2.4 - 0.6 * n)
    return {"linewidth": width, "markersize": 4 + 1.8 * width, "zorder": 2 + n / 10}
