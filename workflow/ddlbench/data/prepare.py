"""Prepare one form of one data set: `python -m ddlbench.prepare mnist5k tfrecord <folder>/manifest.json`.

Worker processes write the form's parts (shards or class folders) into a folder aside, which is renamed into place when
all are there; the manifest comes last. Killed at any moment, the next call goes on with the parts that are finished,
if it has the same job (source, seed, versions), and makes the same bytes. One process at a time prepares a form; a
second one waits for it, and then has nothing to do.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import hashlib
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any

from ddlbench import __version__, registry
from ddlbench.data.crew import Crew, CrewError
from ddlbench.data.manifest import NAME, SPLITS, Manifest, Split
from ddlbench.data.part import NOTES, Part, Written, noted, write_through
from ddlbench.data.source import BadImage, Entry, Place, Source, SourceError
from ddlbench.settings import environment_modules
from ddlbench.settings.config import ConfigError, complain, one_of

JOB = "job.json"
# A second name of the manifest. Snakemake deletes a rule's outputs before it runs the rule, also when another workflow
# has just made them: the form then still knows that it is whole.
KEPT = f".{NAME}"
PROGRESS_S = 5


class PrepareError(RuntimeError):
    """A form cannot be made; one line that names the file."""


def prepare(
    dataset: str,
    form: str,
    folder: Path,
    seed: int = 1,
    *,
    place: Place | None = None,
    workers: int = 1,
    on_error: str = "stop",
) -> Manifest:
    """Write the form into `folder` and return its manifest; what lay there is replaced at the end only.

    Raises ConfigError, SourceError, BadImage (`on_error` "stop"; "skip" leaves bad pictures out), PrepareError.
    """
    place = place or Place(None, folder.parent / "fetched")
    opened = partial(registry.member("datasets", dataset).open_source, place)
    return write_form(opened, dataset, form, folder, seed, workers=workers, on_error=on_error)


def write_form(
    open_source: Callable[[], Source],
    dataset: str,
    form: str,
    folder: Path,
    seed: int = 1,
    *,
    workers: int = 1,
    on_error: str = "stop",
) -> Manifest:
    """`prepare` from a source that need not be a member of `datasets/`."""
    target = registry.member("forms", form)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # The crew is forked before the source is opened, to stay small, and after the lock is taken, to hold it too.
    with _locked(folder), Crew(workers) as crew:
        source = open_source()
        root = str(source.tree.absolute()) if form == "raw" and source.tree else None
        entries = {split: source.entries(split) for split in SPLITS}
        for split, listed in entries.items():
            if not listed:
                raise SourceError(f"{dataset}: its source has no pictures for {split}")
        manifest = Manifest(
            dataset,
            form,
            target.FORMAT,
            root,
            tuple(source.classes),
            target.LABEL_OFFSET,
            seed,
            json.loads(json.dumps(source.described)),
            {"ddlbench": __version__, "pillow": version("pillow")},
            {split: Split(0, {}, 0, {}, _digest(listed), {}) for split, listed in entries.items()},
        )
        if finished := _finished(folder, manifest.job, on_error):
            print(f"{dataset} {form}: is there already", flush=True)
            return finished
        work = folder.with_name(f".{folder.name}.partial")
        if finished := _finished(work, manifest.job, on_error):  # ended between its last part and its name
            _put_in_place(work, folder)
            return finished
        _begin(work, manifest)
        parts = [p for split in SPLITS for p in target.parts(split, entries.pop(split), manifest.classes, seed)]
        written = _write_parts(crew, parts, source, target, work, on_error, f"{dataset} {form}")
        for split in SPLITS:
            manifest.splits[split] = _sum_up(split, parts, written, manifest)
        manifest.write(work)
        _copy(work / NAME, work / KEPT)
        _put_in_place(work, folder)
    return manifest


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Alone with this form. The kernel gives the lock back when the last process that holds it has ended, however."""
    path = folder.with_name(f".{folder.name}.lock")
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{folder}: another process prepares it; waiting until it has ended", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digest(entries: Iterable[Entry]) -> str:
    digest = hashlib.sha256()
    for entry in entries:
        digest.update("\0".join(map(str, entry)).encode() + b"\n")
    return digest.hexdigest()


def _finished(folder: Path, job: dict[str, Any], on_error: str) -> Manifest | None:
    """The manifest of a whole form of the same job; puts it back if Snakemake has deleted it."""
    try:
        manifest = Manifest.read(folder, KEPT)
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    data = manifest.data(folder)
    there = all((data / name).exists() for split in manifest.splits.values() for name in split.sha256)
    skipped = any(split.skipped for split in manifest.splits.values())
    if manifest.job != job or not there or (skipped and on_error == "stop"):
        return None
    if not (folder / NAME).exists():
        _copy(folder / KEPT, folder / NAME)
    return manifest


def _begin(work: Path, manifest: Manifest) -> None:
    """The folder aside, with what an earlier call finished of the same job; emptied if it had another one."""
    job = json.dumps(manifest.job | {"versions": manifest.versions}, indent=1).encode()
    try:
        same = (work / JOB).read_bytes() == job
    except FileNotFoundError:
        same = False
    if not same:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        write_through(work / JOB, job)


def _write_parts(
    crew: Crew, parts: list[Part], source: Source, target: Any, work: Path, on_error: str, name: str
) -> dict[str, Written]:
    """All parts, by name: those that are there, and those that the crew writes now."""
    written: dict[str, Written] = {}
    for part in parts:
        kept = noted(work, part)
        if kept and target.is_whole(part, source, work, kept) and not (kept.skipped and on_error == "stop"):
            written[part.name] = kept
    todo = [part for part in parts if part.name not in written]
    size = _mean_bytes(source, [entry for part in todo for entry in part.entries])
    progress = Progress(name, target.PARTS, len(parts), len(written))
    progress.begin(_bytes(todo, size), work)
    try:
        for part, done in crew.map(partial(_write_part, target.__name__, source, work, on_error), todo):
            written[part.name] = done
            progress.add(done.bytes)
    except BaseException as error:
        crew.stop()
        for part in todo:
            target.discard(part, work)
        progress.end()
        if isinstance(error, BadImage):
            error.add_note("data.on_error: skip goes on without it")
        if isinstance(error, OSError):
            missing = _bytes([part for part in todo if part.name not in written], size)
            raise PrepareError(_explain(error, work, missing)) from error
        raise
    progress.end()
    return written


def _write_part(form: str, source: Source, work: Path, on_error: str, part: Part) -> Written:
    """In a worker process: one part; an error says of which file it is."""
    try:
        written: Written = sys.modules[form].write(part, source, work, on_error)
    except OSError as error:
        error.filename = error.filename or str(work / part.name)
        raise
    return written


def _mean_bytes(source: Source, entries: list[Entry]) -> float:
    """Of a picture, about: from a few of them, because not every source knows its pictures' sizes."""
    sizes = []
    for entry in entries[:: max(1, len(entries) // 20)]:
        with suppress(BadImage):
            sizes.append(len(source.read(entry).encoded))
    return sum(sizes) / max(1, len(sizes))


def _bytes(parts: list[Part], mean: float) -> float:
    """About what these parts take: a record or a directory entry is some hundred bytes more than the picture."""
    return sum(len(part.entries) for part in parts) * (mean + 300)


def _explain(error: OSError, folder: Path, missing: float) -> str:
    where = error.filename or folder
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        free = shutil.disk_usage(folder).free
        return (
            f"{where}: {error.strerror}: about {_size(missing)} more are needed, {_size(free)} are free in {folder}; "
            "make room and start again, finished parts are kept"
        )
    return f"{where}: {error.strerror or error}"


def _sum_up(split: str, parts: list[Part], written: dict[str, Written], manifest: Manifest) -> Split:
    """A split of the manifest from its parts, in their order."""
    found = [written[part.name] for part in parts if part.split == split]
    counts: Counter[str] = Counter()
    for one in found:
        counts.update(one.images_per_class)
    return Split(
        images=counts.total(),
        images_per_class={name: counts[name] for name in manifest.classes},
        bytes=sum(one.bytes for one in found),
        sha256={name: digest for one in found for name, digest in one.sha256.items()},
        listed=manifest.splits[split].listed,
        skipped=dict(sorted(item for one in found for item in one.skipped.items())),
    )


def _copy(path: Path, to: Path) -> None:
    """A copy that is whole or not there, of the same time: what was made from the original is not stale."""
    aside = to.with_name(f"{KEPT}.copy")
    shutil.copy2(path, aside)
    aside.replace(to)


def _put_in_place(work: Path, folder: Path) -> None:
    """Swap a whole form for what lay in its place."""
    shutil.rmtree(work / NOTES, ignore_errors=True)
    (work / JOB).unlink(missing_ok=True)
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    work.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


class Progress:
    """Parts and bytes done, printed every few seconds."""

    def __init__(self, name: str, kind: str, parts: int, kept: int) -> None:
        self.name, self.kind, self.parts, self.done = name, kind, parts, kept
        self.bytes, self.began, self.printed = 0, monotonic(), 0.0

    def begin(self, missing: float, work: Path) -> None:
        kept = f", {self.done} of them done before" if self.done else ""
        free = _size(shutil.disk_usage(work).free)
        self._print(f"{self.parts} {self.kind}{kept}; about {_size(missing)} to write, {free} are free")

    def add(self, size: int) -> None:
        self.done, self.bytes = self.done + 1, self.bytes + size
        if monotonic() - self.printed > PROGRESS_S:
            self.end()

    def end(self) -> None:
        seconds = monotonic() - self.began
        rate = f"{self.bytes / seconds / 1e6:.0f} MB/s"
        self._print(f"{self.done} of {self.parts} {self.kind}, {_size(self.bytes)} in {seconds:.0f} s ({rate})")

    def _print(self, text: str) -> None:
        print(f"{self.name}: {text}", flush=True)
        self.printed = monotonic()


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("form")
    parser.add_argument("manifest", type=Path, help="the form is written into its folder")
    parser.add_argument("--source", help="where the data set lies: data.sources.<data set> of config/config.yaml")
    parser.add_argument("--cache", type=Path, help="for what is fetched; default: 'fetched' beside the form's folder")
    parser.add_argument("--on-error", default="stop", choices=("stop", "skip"), help="at a picture that cannot be used")
    parser.add_argument("--workers", type=int, default=1, help="processes that write")
    a = parser.parse_args()
    environment_modules.check()
    folder = a.manifest.parent
    try:
        for room, name in (("datasets", a.dataset), ("forms", a.form)):
            if name not in registry.members(room):
                raise complain("prepare", room[:-1], name, one_of(registry.members(room), name))
        place = Place(a.source or None, a.cache or folder.parent / "fetched")
        manifest = prepare(a.dataset, a.form, folder, place=place, workers=a.workers, on_error=a.on_error)
    except (ConfigError, SourceError, BadImage, PrepareError, CrewError) as error:
        notes = [n for n in getattr(error, "__notes__", ()) if not n.startswith("Traceback")]
        sys.exit("; ".join([str(error), *notes]))
    except OSError as error:
        sys.exit(_explain(error, folder.parent, 0))
    except KeyboardInterrupt:
        sys.exit("stopped; start again to go on")
    for name, split in manifest.splits.items():
        skipped = f", {len(split.skipped)} skipped (the manifest names them)" if split.skipped else ""
        print(f"{a.dataset} {a.form} {name}: {split.images} images, {_size(split.bytes)}{skipped}")


if __name__ == "__main__":
    main()
