"""Parts of the page that it can do without: one file per part, found by its name.

The tables that every page has are in `page_tables.py`. A section adds tables, or says more with
those that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ddlbench.core import registry

if TYPE_CHECKING:
    import pandas as pd

    from ddlbench.show.page.about import PageStudy
    from ddlbench.show.page.rows import PageTable


@dataclass(frozen=True)
class Given:
    """The material of a section: the study, its tables by name, the runs that have a row to lead
    to, `results/`.
    """

    study: PageStudy
    tables: Mapping[str, pd.DataFrame]
    ids: set[str]
    results: Path


@dataclass(frozen=True)
class Section:
    """A part of the page.

    `place` is its place among the page's tables: those of `page_tables.py` have 10, 20, 30, ...
    """

    place: int
    tables: Callable[[Given], Sequence[PageTable]] | None = None
    # Of all tables of the page: those that it shows first, and the others.
    first: (
        Callable[[Given, Sequence[PageTable]], tuple[list[PageTable], list[PageTable]]] | None
    ) = None
    # Makes the files that it reads, from the tables in that folder, where no rule of Snakemake has:
    # `ddlbench partial`.
    make: Callable[[Path], object] | None = None


class SectionMember(Protocol):
    """The contract of a file of this room."""

    READS: tuple[str, ...]  # files in the study's folder of tables that it is made of
    SECTION: Section


def members() -> list[Any]:
    """Return all members, by their place."""
    modules = [registry.member("sections", name) for name in registry.members("sections")]
    return sorted(modules, key=lambda module: int(module.SECTION.place))


def every() -> list[Section]:
    """Return all sections, by their place."""
    return [module.SECTION for module in members()]


def files() -> list[str]:
    """Return the files in a folder of tables that sections are made of."""
    return list(dict.fromkeys(name for module in members() for name in module.READS))


def read(folder: Path) -> dict[str, pd.DataFrame]:
    """Read the tables that sections are made of, by name.

    Raises OSError for one that is missing.
    """
    import pandas as pd

    paths = [folder / name for name in files()]
    return {
        path.stem: pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
        for path in paths
    }
