"""Mends: every patch of a package that is not ours, one file each, and the guard that keeps it to its releases.

A file's docstring says for which releases it is, what is wrong, and, if that is a fault upstream, in three lines what
its maintainers could do. A patch that would do harm in a release that nobody tried calls `only_for` first. One that
changes nothing where the fault is gone has no guard, and says so.
"""

from __future__ import annotations

import re
from importlib.metadata import version


class ReleaseError(RuntimeError):
    """A package is of a release that a mend was not tried with; one line."""


def release(distribution: str) -> str:
    """The installed release in numbers: "2.13.0" of version "2.13.0+cu130". Raises PackageNotFoundError."""
    installed = version(distribution)
    numbers = re.match(r"\d+(\.\d+)*", installed)
    return numbers[0] if numbers else installed


def only_for(distribution: str, releases: tuple[str, ...], mend: str) -> None:
    """Let a mend go on only in a release that it was tried with: "2.4" stands for 2.4.0, 2.4.1 and so on.

    Labels of builds (`+cpu`, `.post1`) do not count. `mend` is the mend's file without its ending. Raises ReleaseError,
    PackageNotFoundError.
    """
    installed = release(distribution)
    if not any(f"{installed}.".startswith(f"{tried}.") for tried in releases):
        raise ReleaseError(
            f"{distribution} {installed} was not tried with ddlbench/mends/{mend}.py, which changes how it works; "
            f"allowed: {' or '.join(releases)}: install such a release (make install)"
        )
