"""Prepare one form of one data set: `python -m ddlbench.prepare mnist5k tfrecord
<folder>/manifest.json`.

Several processes write the form's parts (shards or class folders) into a folder aside, which is
renamed into place when all are there. Killed at any moment, the form is whole or not there, and the
next call begins from the start and makes the same bytes. A form that is there and is not the one
that is asked for stays (`target.py`). One call at a time prepares a form; a second one waits for
it, and then has nothing to do.
"""

import argparse
import errno
import hashlib
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any

from ddlbench import __version__
from ddlbench.core import registry
from ddlbench.core.files import printable
from ddlbench.core.formatting import gigabytes
from ddlbench.data import datasets
from ddlbench.data.crew import Crew, CrewError
from ddlbench.data.form_parts import Part, Written
from ddlbench.data.manifest import KEPT, NAME, SPLITS, Manifest, Split, copy
from ddlbench.data.source import BadImage, DataError, Entry, Place, Source, SourceError
from ddlbench.data.target import Target, TargetError, clash, manifest_in, refusal
from ddlbench.settings import dataset as own
from ddlbench.settings import environment_modules
from ddlbench.settings.config import ConfigError, complain, one_of

EVERY_S = 5  # between two lines of progress
MOST_LETTERS = 200  # of a value in a message


class PrepareError(DataError):
    """The error that a form cannot be made; one line that names the file."""


class Progress:
    """The progress that is printed while a form is made, of a `kind` of parts (shards, class
    folders).
    """

    def __init__(self, name: str, kind: str, parts: int) -> None:
        self.name, self.kind, self.parts, self.done = name, kind, parts, 0
        self.bytes, self.began, self.printed = 0, monotonic(), 0.0

    def begin(self, missing: float, work: Path) -> None:
        """Print what is to be done: about `missing` bytes, into the folder `work`."""
        free = gigabytes(shutil.disk_usage(work).free)
        self._print(
            f"{self.parts} {self.kind}; about {gigabytes(missing)} to write, {free} are free"
        )

    def add(self, size: int) -> None:
        """Count one more finished part of `size` bytes, and print the progress now and then."""
        self.done, self.bytes = self.done + 1, self.bytes + size
        if (
            self.done < self.parts and monotonic() - self.printed > EVERY_S
        ):  # of the last part the end speaks
            self.end()

    def end(self) -> None:
        """Print what was done."""
        seconds = monotonic() - self.began
        rate = f"{self.bytes / seconds / 1e6:.0f} MB/s"
        self._print(
            f"{self.done} of {self.parts} {self.kind}, {gigabytes(self.bytes)} in {seconds:.0f} s"
            f" ({rate})"
        )

    def _print(self, text: str) -> None:
        print(f"{self.name}: {text}", flush=True)
        self.printed = monotonic()


def prepare(
    dataset: str,
    form: str,
    folder: Path,
    seed: int = 1,
    *,
    place: Place | None = None,
    processes: int = 1,
    on_error: str = "stop",
) -> Manifest:
    """Write the form into `folder`, if it is not there, and return its manifest.

    Raises ConfigError, SourceError, BadImage (`on_error` "stop"; "skip" leaves bad pictures out),
    TargetError (something else lies in `folder`), PrepareError, OSError.
    """
    place = place or Place(None, folder.parent / "fetched")
    if place.given and not manifest_in(folder) and (problem := clash(folder, place.given)):
        raise TargetError(problem)
    member = datasets.get(dataset)
    opened = partial(member.open_source, place)
    # What users describe holds what it holds.
    expected = member.expected(place.given) if dataset in registry.members("datasets") else None
    return write_form(
        opened,
        dataset,
        form,
        folder,
        seed,
        processes=processes,
        on_error=on_error,
        expected=expected,
    )


def write_form(
    open_source: Callable[[], Source],
    dataset: str,
    form: str,
    folder: Path,
    seed: int = 1,
    *,
    processes: int = 1,
    on_error: str = "stop",
    expected: tuple[dict[str, int], int] | None = None,
) -> Manifest:
    """Write a form from a source that need not be a member of `datasets/`, and return its manifest.

    Print a warning if the source's numbers (images per split, classes) differ from `expected`.
    """
    rules = registry.member("forms", form)
    target = Target(folder)
    # The crew is forked before the source is opened, to stay small.
    with Crew(processes) as crew:
        source = open_source()
        root = str(source.tree.absolute()) if rules.IN_PLACE and source.tree else None
        entries = {split: source.entries(split) for split in SPLITS}
        _check_names(source.classes, chain.from_iterable(entries.values()))
        for split, listed in entries.items():
            if not listed:
                raise SourceError(f"{dataset}: its source has no pictures for {split}")
        if expected:
            warn(
                dataset,
                {split: len(listed) for split, listed in entries.items()},
                len(source.classes),
                expected,
            )
        manifest = Manifest(
            dataset,
            form,
            rules.FORMAT,
            root,
            tuple(source.classes),
            rules.LABEL_OFFSET,
            seed,
            json.loads(json.dumps(source.described)),
            {"ddlbench": __version__, "pillow": version("pillow")},
            {split: Split(0, {}, 0, {}, _digest(listed), {}) for split, listed in entries.items()},
        )
        # Before the lock too, which another user may hold and own.
        if finished := _finished(target.folder, manifest.job, on_error):
            return finished
        with target.alone():
            if finished := _finished(target.folder, manifest.job, on_error):
                return finished
            target.begin()
            parts = [
                p
                for split in SPLITS
                for p in rules.parts(split, entries.pop(split), manifest.classes, seed)
            ]
            written = _write_parts(
                crew, parts, source, rules, target, on_error, f"{dataset} {form}"
            )
            for split in SPLITS:
                manifest.splits[split] = _sum_up(split, parts, written, manifest)
            rules.index(target.work, manifest)
            manifest.write(target.work)
            target.put()
    return manifest


def warn(
    dataset: str, images: dict[str, int], classes: int, expected: tuple[dict[str, int], int]
) -> None:
    """Warn if the contents of a data set differ from the published (or requested) ones."""
    if (images, classes) != expected:
        here, there = (
            f"{number} classes, {counts['train']} images for training, {counts['val']} for"
            " validation"
            for counts, number in ((images, classes), expected)
        )
        print(
            f"WARNING: {dataset}: its source holds {here}; the data set has {there}. Do not compare"
            " results",
            flush=True,
        )


def _check_names(classes: Iterable[str], entries: Iterable[Entry]) -> None:
    """Raise SourceError at a name that manifests or lists of files cannot hold: not UTF-8, or of
    two lines.
    """
    for name in chain(classes, (entry.filename for entry in entries)):
        if "\n" in name:
            raise SourceError(
                f"{name!r}: the name of this class or picture contains a line break; rename it"
            )
        try:
            name.encode()
        except UnicodeEncodeError:
            raise SourceError(
                f"{name!r}: the name of this class or picture is not UTF-8; rename it"
            ) from None


def _digest(entries: Iterable[Entry]) -> str:
    digest = hashlib.sha256()
    for entry in entries:
        digest.update("\0".join(map(str, entry)).encode() + b"\n")
    return digest.hexdigest()


def _finished(folder: Path, job: dict[str, Any], on_error: str) -> Manifest | None:
    """Return the manifest of the existing form, None if there is none. Restore it if Snakemake has
    deleted it.

    Raises TargetError if that form is not the requested one, or incomplete.
    """
    manifest = manifest_in(folder)
    if manifest is None:
        return None
    if why := _difference(folder, manifest, job, on_error):
        raise refusal(folder, why)
    if not (folder / NAME).exists():
        copy(folder / KEPT, folder / NAME)
    print(f"{manifest.dataset} {manifest.form}: already prepared", flush=True)
    return manifest


def _difference(folder: Path, manifest: Manifest, job: dict[str, Any], on_error: str) -> str | None:
    """Return why the form of this manifest differs from the requested one; None if it does not
    differ.
    """
    for key, asked in job.items():
        there = manifest.job[key]
        if there == asked:
            continue
        if key == "classes":
            return f"holds a form with other classes ({len(there)}); {len(asked)} are asked for"
        if key == "listed":
            return "holds a form of other pictures: their names, labels, sizes or places differ"
        return f"holds another form: its {key} is {_short(there)}, asked for is {_short(asked)}"
    if faults := manifest.faults():
        return faults[0]
    data = manifest.data(folder)
    for split in manifest.splits.values():
        for name in split.sha256:
            if not (data / name).exists():
                return f"is incomplete: {name} is missing"
        if split.skipped and on_error == "stop":
            return (
                f"holds a form without {len(split.skipped)} pictures that were skipped"
                " (data.on_error: stop)"
            )
    return None


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}..."


def _write_parts(
    crew: Crew,
    parts: list[Part],
    source: Source,
    rules: Any,
    target: Target,
    on_error: str,
    name: str,
) -> dict[str, Written]:
    """Write all parts with the crew, and return what each holds, by name.

    If that fails, nothing is left of them.
    """
    written: dict[str, Written] = {}
    size = _bytes(parts, _mean_bytes(source, [entry for part in parts for entry in part.entries]))
    progress = Progress(name, rules.PARTS, len(parts))
    progress.begin(size, target.work)
    try:
        for part, done in crew.map(
            partial(_write_part, rules.__name__, source, target.work, on_error), parts
        ):
            written[part.name] = done
            progress.add(done.bytes)
    except BaseException as error:
        crew.stop()
        target.clear()
        progress.end()
        if isinstance(error, BadImage):
            error.add_note("data.on_error: skip goes on without it")
        if isinstance(error, OSError):
            raise PrepareError(_explain(error, target.folder.parent, size)) from error
        raise
    progress.end()
    return written


def _write_part(form: str, source: Source, work: Path, on_error: str, part: Part) -> Written:
    """Write one part, in a process of the crew. An error names the file that it is of."""
    try:
        written: Written = sys.modules[form].write(part, source, work, on_error)
    except OSError as error:
        error.filename = error.filename or str(work / part.name)
        raise
    return written


def _mean_bytes(source: Source, entries: list[Entry]) -> float:
    """Estimate the size of a picture [bytes] from a few of them: not every source knows the sizes
    beforehand.
    """
    sizes = []
    for entry in entries[:: max(1, len(entries) // 20)]:
        with suppress(BadImage):
            sizes.append(len(source.read(entry).encoded))
    return sum(sizes) / max(1, len(sizes))


def _bytes(parts: list[Part], mean: float) -> float:
    """Estimate the size of these parts [bytes]: a record or a directory entry adds some hundred
    bytes to a picture.
    """
    return sum(len(part.entries) for part in parts) * (mean + 300)


def _explain(error: OSError, folder: Path, needed: float) -> str:
    where = error.filename or folder
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        free = shutil.disk_usage(folder).free
        return (
            f"{where}: {error.strerror}: about {gigabytes(needed)} are needed, {gigabytes(free)}"
            f" are free in {folder}; free disk space and start again"
        )
    return f"{where}: {error.strerror or error}"


def _sum_up(
    split: str, parts: list[Part], written: dict[str, Written], manifest: Manifest
) -> Split:
    """Combine the parts of a split, in their order, into the split of the manifest."""
    in_split = [written[part.name] for part in parts if part.split == split]
    counts: Counter[str] = Counter()
    for part in in_split:
        counts.update(part.images_per_class)
    return Split(
        images=counts.total(),
        images_per_class={name: counts[name] for name in manifest.classes},
        bytes=sum(part.bytes for part in in_split),
        sha256={name: digest for part in in_split for name, digest in part.sha256.items()},
        listed=manifest.splits[split].listed,
        skipped=dict(sorted(item for part in in_split for item in part.skipped.items())),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("form")
    parser.add_argument("manifest", type=Path, help="the form is written into its folder")
    parser.add_argument(
        "--source", help="where the data set lies: data.sources.<data set> of config/config.yaml"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        help="for what is fetched; default: 'fetched' beside the form's folder",
    )
    parser.add_argument(
        "--on-error",
        default="stop",
        choices=("stop", "skip"),
        help="at a picture that cannot be used",
    )
    # The second name is what rule prepare's text has; another text would make finished forms stale.
    parser.add_argument(
        "--processes", "--workers", type=int, default=1, help="how many write at once"
    )
    a = parser.parse_args()
    environment_modules.check_loaded()
    folder = a.manifest.parent
    try:
        for kind, name, names in (
            ("dataset", a.dataset, own.datasets()),
            ("form", a.form, registry.members("forms")),
        ):
            if name not in names:
                raise complain("prepare", kind, name, one_of(names, name))
        place = Place(a.source or None, a.cache or folder.parent / "fetched")
        manifest = prepare(
            a.dataset, a.form, folder, place=place, processes=a.processes, on_error=a.on_error
        )
    except (ConfigError, DataError, CrewError) as error:
        notes = [n for n in getattr(error, "__notes__", ()) if not n.startswith("Traceback")]
        sys.exit(printable("; ".join([str(error), *notes])))
    except OSError as error:
        sys.exit(printable(_explain(error, folder.parent, 0)))
    except KeyboardInterrupt:
        sys.exit("stopped; nothing was kept: start again")
    for name, split in manifest.splits.items():
        skipped = (
            f", {len(split.skipped)} skipped (the manifest names them)" if split.skipped else ""
        )
        print(
            f"{a.dataset} {a.form} {name}: {split.images} images, {gigabytes(split.bytes)}{skipped}"
        )


if __name__ == "__main__":
    main()
