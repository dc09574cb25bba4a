"""Patches: every patch of a package that is not ours, and every use of its private names, one file
each.

A file's docstring says for which releases it is, what is wrong, and, if that is a fault upstream,
in three lines what its maintainers could do. What would do harm in a release that nobody tried
calls `only_for` first; what needs a private name asks `private` for it. A patch that changes
nothing where the fault is gone has no guard, and says so.
"""

import re
from typing import Any

from ddlbench.core import registry


class ReleaseError(RuntimeError):
    """The error that a package is of a release that a patch was not tried with; one line."""


def release(distribution: str) -> str | None:
    """Return the installed release in numbers: "2.13.0" of version "2.13.0+cu130".

    None if pip knows no such package.
    """
    numbers = re.match(r"\d+(\.\d+)*", registry.release(distribution) or "")
    return numbers[0] if numbers else None


def only_for(distribution: str, releases: tuple[str, ...], patch: str) -> None:
    """Let a patch go on only in a release that it was tried with: "2.4" stands for 2.4.0, 2.4.1 and
    so on.

    Labels of builds (`+cpu`, `.post1`) do not count, and a package that says no release passes.
    `patch` is the patch's file without its ending. Raises ReleaseError.
    """
    installed = release(distribution)
    if installed and not any(f"{installed}.".startswith(f"{tried}.") for tried in releases):
        raise ReleaseError(
            f"{distribution} {installed} was not tested with ddlbench/patches/{patch}.py, which"
            f" changes how it works; allowed: {' or '.join(releases)}: install such a release (make"
            " install)"
        )


def private(owner: Any, name: str, distribution: str, releases: tuple[str, ...], patch: str) -> Any:
    """Return a private attribute of an object of another package.

    Raises ReleaseError if it has none.
    """
    if not hasattr(owner, name):
        raise ReleaseError(
            f"{distribution} {release(distribution)} has no {name}, which"
            f" ddlbench/patches/{patch}.py needs; allowed: {' or '.join(releases)}: install such a"
            " release (make install)"
        )
    return getattr(owner, name)
