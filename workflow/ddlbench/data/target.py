"""The place that a form is put into: what may lie there, and how the form gets there.

A form is made in a hidden folder beside its place, `.raw.partial`, and renamed to `raw` when it is
whole. So it is whole or not there, and what a killed process left aside is removed by the next one.
What lies in the place is never replaced: if it is not the form that is asked for, `prepare` says
what to type, and ends. `.raw.lock` is held by the process that prepares.
"""

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ddlbench.core.files import printable
from ddlbench.data.manifest import KEPT, NAME, SPLITS, Manifest
from ddlbench.data.source import DataError
from ddlbench.settings.config import ConfigError
from ddlbench.settings.dataset import folder_of

LEFT = "nothing was touched"
ELSEWHERE = "choose another folder (`data` of the machine's file)"
POLL_S = 0.5  # between two looks at a lock that another process holds


class TargetError(DataError):
    """The error that a form cannot be put into its place: the reason and what to do."""


class Target:
    """The place of one form. The path is absolute; links in it stay."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.abspath(folder))  # noqa: PTH100 (Path.absolute keeps `..`)
        if not self.folder.name:
            raise TargetError(
                f"{self.folder}: is not a folder for a form; allowed: <data>/<data set>/<form>"
            )
        self.work = self.folder.with_name(f".{self.folder.name}.partial")
        self.lock = self.folder.with_name(f".{self.folder.name}.lock")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of this form; wait for another process that does. Raises TargetError,
        OSError.
        """
        from filelock import FileLock, Timeout

        self.folder.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(self.lock) and (self.lock.is_symlink() or not self.lock.is_file()):
            raise TargetError(
                f"{self.lock}: is not a file, but this path is used for a lock; remove it"
            )
        lock = FileLock(self.lock, poll_interval=POLL_S)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print(
                printable(
                    f"{self.folder}: another process prepares it; waiting until it has ended"
                ),
                flush=True,
            )
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def begin(self) -> None:
        """Make an empty temporary folder. The lock must be held. Raises TargetError if no form may
        be put here, OSError.
        """
        if problem := fault(self.folder):
            raise TargetError(problem)
        self.clear()
        self.work.mkdir()

    def clear(self) -> None:
        """Remove the temporary folder, also one of a process that was killed. Raises TargetError,
        OSError.
        """
        if not os.path.lexists(self.work):
            return
        ours = (NAME, KEPT, *SPLITS)
        if (
            self.work.is_symlink()
            or not self.work.is_dir()
            or not all(n.startswith(ours) for n in _names(self.work))
        ):
            raise TargetError(
                f"{self.work}: was not made by ddlbench, but ddlbench needs this path; move it away"
            )
        shutil.rmtree(self.work)

    def put(self) -> None:
        """Give the complete form in the temporary folder its final name. Raises OSError if
        something has taken that name.
        """
        self.work.rename(self.folder)  # over an empty folder, which Snakemake makes


def check_places(forms: Mapping[str | Path, str | None]) -> None:
    """Check the places of forms for the plan.

    `forms` has the manifest of each form that is wanted and where its data set lies.

    Raises ConfigError if `prepare` would refuse one: looks at the place and the source only,
    touches nothing.
    """
    for manifest, given in forms.items():
        folder = Path(manifest).parent
        if manifest_in(folder):
            continue
        problem = (clash(folder, given) if given else None) or fault(folder)
        if problem:
            raise ConfigError(problem)


def fault(folder: Path) -> str | None:
    """Return why no form may be put here, on one line; None if one may."""
    if folder.is_symlink():
        return (
            f"{folder}: is a symbolic link; {LEFT}: remove it, or link the folder above it instead"
        )
    if not folder.exists():
        return None
    if not folder.is_dir():
        return f"{folder}: is not a folder, but a form is to be put here; {LEFT}: move it away"
    if names := _names(folder):
        return (
            f"{folder}: was not made by ddlbench (it holds {names[0]!r}, but no {KEPT} that says"
            f" so); {LEFT}: move it away, or {ELSEWHERE}"
        )
    return None


def clash(folder: Path, argument: str) -> str | None:
    """Return why a form of the source that was `given` may not lie in this folder, on one line;
    None if it may.
    """
    argument = folder_of(argument)
    source = Path(argument).expanduser()
    if not os.path.lexists(source):  # not an existing path
        return None
    place, real = Path(os.path.realpath(folder)), Path(os.path.realpath(source))
    if not (place.is_relative_to(real) or real.is_relative_to(place)):
        return None
    return (
        f"{folder}: a form is to be put here, but its source {argument} is the same folder, or one"
        f" lies within the other; {LEFT}: use folders side by side (data.sources of"
        " config/config.yaml, `data` of the machine's file)"
    )


def refusal(folder: Path, why: str) -> TargetError:
    """Return the error that the existing form is not the requested one."""
    remove = f"rm -r {shlex.quote(str(folder))}"
    return TargetError(
        f"{folder}: {why}; {LEFT}. To make it again: {remove}. To keep it: {ELSEWHERE}"
    )


def manifest_in(folder: Path) -> Manifest | None:
    """Return the manifest of a complete form that ddlbench made, None if the folder holds none."""
    try:
        manifest = Manifest.read(folder, KEPT)
    except (OSError, ValueError):
        return None
    return manifest if "ddlbench" in manifest.versions else None


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
