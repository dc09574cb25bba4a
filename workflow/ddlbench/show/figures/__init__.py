"""One file per figure: what it needs, its data, its picture; its docstring is its caption. Shared
helpers have a `_`.

`workflow/rules/analysis.smk` makes those that a study names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ddlbench.core.program import IMAGES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# The rows of the runs to show of each table in the figure's TABLES, by the table's name
# (`analysis/tables.py`).
Tables = Mapping[str, "pd.DataFrame"]


@dataclass(frozen=True)
class Options:
    """The options of a figure, besides its data.

    `frameworks` are the names of all frameworks that it is to show, those of failed runs too: a
    framework keeps its colour. `reference` has the columns of a file in `config/references`.
    `basis`, `target`: see the study's schema. `sample` is what a step counts: images, or what a
    program's file says. `about` stands below the picture: of what study, machine and day it is.
    """

    title: str
    device: str
    device_name: str
    frameworks: tuple[str, ...] = ()
    reference: pd.DataFrame | None = None
    basis: str = "steps"
    target: float | None = None
    sample: str = IMAGES
    about: str = ""


class FigureMember(Protocol):
    """The contract of a file of this room.

    Its docstring is the caption that people read below the figure in the report.

    The planner reads docstring and constants without importing it (`registry.constant`), so they
    are plain text there. Three constants may be left out. PUBLISHED: what it can draw of a
    reference (quantities in it; of a file without, its columns). SETTINGS: keys of a figure in a
    study that it takes and not all do: `basis`, `target`. MACHINE: what its tables have of the
    machine's file: `terms` (prices and interruptions, in table costs), `peaks` (column mfu). Others
    know nothing of these, and are not drawn again when they change.
    """

    TABLES: tuple[str, ...]  # that its data is made from

    def data(self, tables: Tables, options: Options) -> pd.DataFrame:
        """Return what the picture is drawn from, one row per point or bar or run: all that is in
        `<figure>.csv`.

        Rows are in an order that depends on nothing but the runs, so that the same runs give the
        same bytes.
        """

    def draw(self, data: pd.DataFrame, options: Options) -> Figure:
        """Draw the picture, from what `data` returned, read back from its file."""
