"""The place that a form is put into: who may write there, what may be replaced, and how.

A form is made in a hidden folder beside its place and renamed when it is whole. What lay in the place is renamed away
first and removed last. Nothing is replaced or removed that ddlbench did not make: a form says so by its hidden
manifest, an unfinished one by its job file. Names beside the place `raw`:

    .raw.partial    the form while it is made (prepare.py, part.py)
    .raw.old        what lay in the place, between two renames; goes back if a kill came between them
    .raw.removed    the same, when it is only left to be removed
    .raw.lock       held by the process that prepares
    .raw.readers/   marks of those who read the form (readers.py)
"""

import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ddlbench.core import registry
from ddlbench.core.files import printable
from ddlbench.data import readers
from ddlbench.data.manifest import KEPT, Manifest
from ddlbench.data.part import NOTES, write_through
from ddlbench.data.source import DataError, Entry
from ddlbench.settings.config import ConfigError
from ddlbench.settings.dataset import lies_at

JOB = "job.json"
LEFT = "nothing was touched"


class TargetError(DataError):
    """A form cannot be put into its place; one line that says why, and what to do."""


class Target:
    """The place of one form, and its neighbours. The path is absolute; links in it stay."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.abspath(folder))  # noqa: PTH100 (Path.absolute keeps `..`)
        if not self.folder.name:
            raise TargetError(f"{self.folder}: is no folder for a form; allowed: <data>/<data set>/<form>")
        self.work, self.old, self.removed, self.lock = (
            self.folder.with_name(f".{self.folder.name}.{what}") for what in ("partial", "old", "removed", "lock")
        )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Alone with this form. The kernel gives the lock back when the last process that holds it has ended, however.

        Raises TargetError if the lock's name is taken by something else, OSError.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = _open_lock(self.lock)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise TargetError(f"{self.lock}: is a symbolic link, but this name is for a lock; remove it") from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise TargetError(f"{self.lock}: is no file, but this name is for a lock; remove it")
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(printable(f"{self.folder}: another process prepares it; waiting until it has ended"), flush=True)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def recover(self) -> None:
        """Finish what a killed process had begun here. The lock must be held. Raises TargetError, OSError."""
        for path in (self.work, self.old, self.removed):
            if os.path.lexists(path) and not _says_so(path):
                raise TargetError(f"{path}: was not made by ddlbench, but this name is for its use; move it away")
        _remove(self.removed)
        if self.old.exists():
            if _is_empty(self.folder):  # killed before the new form was in its place
                self.old.rename(self.folder)
            else:
                self._remove_old()

    def check_free(self, entries: Iterable[Entry]) -> None:
        """Raises TargetError if a form may not be put here. `entries` is what is read for it: not from here."""
        if problem := fault(self.folder, replace=True):
            raise TargetError(problem)
        if _is_empty(self.folder):
            return
        manifest = manifest_in(self.folder)
        if manifest and not manifest.root:
            form = registry.member("forms", manifest.form)
            if stranger := next(iter(form.strangers(self.folder, manifest)), None):
                raise TargetError(
                    f"{self.folder / stranger}: was not made by ddlbench, but lies in a form that is to be replaced; "
                    f"{LEFT}: move it away"
                )
        if inside := _lies_in(self.folder, entries):
            raise TargetError(
                f"{inside}: is to be read, but lies in {self.folder}, which is to be replaced; {LEFT}: give the source "
                "a folder of its own"
            )
        self._leave_to_readers()

    def put(self) -> None:
        """Put the whole form that lies aside into the place. Raises TargetError, OSError: the old form is kept then."""
        self.check_free(())  # again: hours may have passed since
        shutil.rmtree(self.work / NOTES, ignore_errors=True)
        (self.work / JOB).unlink(missing_ok=True)
        if not _is_empty(self.folder):
            self.folder.rename(self.old)
            try:
                # Now, because from here on nobody can begin to read it.
                self._leave_to_readers()
                self.work.rename(self.folder)
            except BaseException:
                self.old.rename(self.folder)
                raise
            self._remove_old()
        else:
            self.work.rename(self.folder)  # over an empty folder, which Snakemake makes

    def begin(self, job: bytes) -> None:
        """An empty folder aside for this job."""
        _remove(self.work)
        self.work.mkdir()
        write_through(self.work / JOB, job)

    def _remove_old(self) -> None:
        self.old.rename(self.removed)
        try:
            _remove(self.removed)
        except OSError as error:  # the new form is in its place
            print(printable(f"{self.removed}: cannot be removed ({error.strerror}); the next call tries again"))

    def _leave_to_readers(self) -> None:
        now = time.time()
        with suppress(OSError):  # another user's lock
            os.utime(self.lock)
            now = self.lock.stat().st_mtime
        if who := readers.reader(self.folder, now):
            raise TargetError(
                f"{self.folder}: holds another form of this data set, which is read by {who}. It is not replaced while "
                f"that reads. Start again when it has ended (one that was killed counts for {readers.STALE_S / 60:.0f} "
                "minutes), or choose another folder (`data` of the machine's file)"
            )


def check_places(forms: Mapping[str | Path, str | None]) -> None:
    """For the plan: `forms` has the manifest of each form that is wanted and where its data set lies.

    Raises ConfigError if `prepare` would refuse one: looks at the place and the source only, touches nothing.
    """
    for manifest, given in forms.items():
        folder = Path(manifest).parent
        problem = (clash(folder, given) if given else None) or fault(folder)
        if problem:
            raise ConfigError(problem)


def fault(folder: Path, replace: bool = False) -> str | None:
    """Why no form may be put here, on one line; None if one may, or (unless it is to be replaced) lies here already."""
    if folder.is_symlink() and (replace or manifest_in(folder) is None):
        return f"{folder}: is a symbolic link; {LEFT}: remove it, or link the folder above it instead"
    if not folder.exists():
        return None
    if not folder.is_dir():
        return f"{folder}: is no folder, but a form is to be put here; {LEFT}: move it away"
    names = _names(folder)
    if names and manifest_in(folder) is None:
        return (
            f"{folder}: was not made by ddlbench (it holds {names[0]!r}, but no {KEPT} that says so); {LEFT}: move it "
            "away, or choose another folder (`data` of the machine's file)"
        )
    owner = folder.stat().st_uid
    if names and replace and os.geteuid() not in (0, owner):
        return (
            f"{folder}: holds another form of this data set, which belongs to another user (number {owner}); {LEFT}: "
            "choose another folder (`data` of the machine's file)"
        )
    return None


def clash(folder: Path, given: str) -> str | None:
    """Why a form of the source that was `given` may not lie in this folder, on one line; None if it may."""
    given = lies_at(given)
    source = Path(given).expanduser()
    if not os.path.lexists(source) or not overlap(source, folder):  # what is no path is no file either
        return None
    manifest = manifest_in(folder)
    if manifest and manifest.source.get("source") in (given, os.path.abspath(source)):  # noqa: PTH100
        return None  # was made from it before this was refused; nothing is to be written
    return (
        f"{folder}: a form is to be put here, but its source {given} is the same folder, or one lies within the other; "
        f"{LEFT}: use folders side by side (data.sources of config/config.yaml, `data` of the machine's file)"
    )


def overlap(place: Path, other: Path) -> bool:
    """Whether two paths are one place, or one lies within the other, whatever links or relative paths they take."""
    place, other = Path(os.path.realpath(place)), Path(os.path.realpath(other))
    above = [(place, path) for path in (other, *other.parents)] + [(other, path) for path in place.parents]
    return any(_is_same(a, b) for a, b in above)


def manifest_in(folder: Path) -> Manifest | None:
    """The manifest of a whole form that ddlbench made, None if the folder holds none."""
    try:
        manifest = Manifest.read(folder, KEPT)
    except (OSError, ValueError):
        return None
    return manifest if "ddlbench" in manifest.versions else None


def _open_lock(path: Path) -> int:
    """Never truncated, never through a link: it may be another user's file. Some NFS lock only what may be written."""
    flags = os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(path, os.O_RDWR | flags, 0o666)
    except PermissionError:
        if not path.exists():
            raise
        return os.open(path, os.O_RDONLY | flags & ~os.O_CREAT)


def _says_so(folder: Path) -> bool:
    """Whether a hidden folder is ddlbench's: a form, an unfinished one, or one that has only just been begun."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    names = _names(folder)
    return set(names) <= {JOB, f"{JOB}.partial"} or JOB in names or manifest_in(folder) is not None


def _is_empty(folder: Path) -> bool:
    with suppress(FileNotFoundError):
        return not _names(folder)
    return True


def _remove(folder: Path) -> None:
    """Remove a folder that ddlbench made. What says so goes last, so that it is still said after a kill."""
    if not folder.exists():
        return
    last = {JOB, KEPT}
    for name in _names(folder):
        path = folder / name
        if name in last:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    for name in last:
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()


def _lies_in(folder: Path, entries: Iterable[Entry]) -> str | None:
    """The first entry whose file lies in the folder, through whatever links."""
    inside = f"{os.path.realpath(folder)}/"
    real_folders: dict[str, str] = {}
    for entry in entries:
        above = os.path.dirname(entry.path)  # noqa: PTH120 (a million of them)
        if above not in real_folders:
            real_folders[above] = os.path.realpath(above)
        real = os.path.realpath(entry.path) if os.path.islink(entry.path) else f"{real_folders[above]}/"  # noqa: PTH114
        if real.startswith(inside):
            return entry.path
    return None


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _is_same(place: Path, other: Path) -> bool:
    with suppress(OSError):
        return place == other or place.samefile(other)
    return False
