"""The folder that a program runs in: each run has one of its own, with links to what lies in the
folder of its file.

A program may read what lies beside it (`data/`, `configurator.py`) and write there, too. What runs
write stays apart.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ddlbench.settings.program import MOST_FILES, PASSED_OVER


def lay_out(source: Path, work: Path) -> None:
    """Make `work` look like `source`: folders are folders, files are links.

    A folder with more than MOST_FILES files is a link as a whole. What is there from an earlier try
    stays.
    """
    work.mkdir(parents=True, exist_ok=True)
    for entry in sorted(source.iterdir()):
        here = work / entry.name
        if entry.name in PASSED_OVER or (os.path.lexists(here) and not here.is_dir()):
            continue
        if entry.is_dir() and not entry.is_symlink() and not _many(entry):
            lay_out(entry, here)
        elif not os.path.lexists(here):
            here.symlink_to(entry.resolve())


def _many(folder: Path) -> bool:
    return len([*islice(_files(folder), MOST_FILES + 1)]) > MOST_FILES


def _files(folder: Path) -> Iterator[str]:
    for _, _, names in os.walk(folder):
        yield from names


def of_the_run(work: Path) -> Iterator[Path]:
    """Yield the files that a run wrote."""
    for top, _, names in os.walk(work):
        yield from (Path(top) / name for name in names if not Path(top, name).is_symlink())


def remove_unchanged(work: Path) -> bool:
    """Remove the links, and folders in which nothing else lies: what the run did not write. Return
    whether it wrote anything.
    """
    left = False
    for entry in [*work.iterdir()]:
        if entry.is_symlink():
            entry.unlink()
        elif entry.is_dir():
            if remove_unchanged(entry):
                left = True
            else:
                entry.rmdir()
        else:
            left = True
    return left
