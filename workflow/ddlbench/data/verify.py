"""Read prepared forms again and compare them with their manifests: `ddlbench verify <folder>...`.

Every record (length and data CRC, offsets against the .idx) or file is read, every digest compared,
a sample of pictures decoded; images per class are compared with the manifest, and among the forms
of a data set. `glance` is the short look that every run takes before it trains.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ddlbench.core import registry
from ddlbench.core.files import printable
from ddlbench.data.crew import Crew
from ddlbench.data.form_parts import Checked
from ddlbench.data.manifest import SPLITS, Manifest, finished_ns

# One picture in so many is decoded, and at least so many per split.
DECODE_EVERY = 100
DECODE_AT_LEAST = 10


class Task(NamedTuple):
    """One part (a shard, a class folder) to read."""

    folder: Path
    manifest: Manifest
    split: str
    name: str


def verify(folders: Sequence[Path], processes: int = 1) -> list[str]:
    """Return what is wrong with the forms in these folders, one line each. Print a line for each
    form that is complete.
    """
    with Crew(processes) as crew:
        return [printable(problem) for problem in _verify(folders, crew)]


def glance(folder: Path | None) -> list[str]:
    """Return what is wrong with a form as far as sizes and times of change show it, one line
    each.
    """
    if folder is None:
        return []
    try:
        manifest, finished = Manifest.read(folder), finished_ns(folder)
        form, data = registry.member("forms", manifest.form), manifest.data(folder)
        problems: list[str] = manifest.faults() or form.glance(data, manifest, finished)
    except (OSError, ValueError) as error:
        return [printable(f"{folder}: cannot be used: {error}")]
    return [printable(f"{data}: {problem}") for problem in problems]


def index(folder: Path | None) -> list[str]:
    """Make a form's index where it is missing (`forms.Form.index`), and return why it is wrong or
    cannot be made. Where nothing may be written, nothing is: each rank then looks for itself.
    """
    try:
        if folder is not None:
            manifest = Manifest.read(folder)
            registry.member("forms", manifest.form).index(folder, manifest)
    except ValueError as error:
        return [printable(str(error))]
    except OSError:
        pass
    return []


def _verify(folders: Sequence[Path], crew: Crew) -> list[str]:
    problems: list[str] = []
    manifests: dict[Path, Manifest] = {}
    for folder in folders:
        try:
            manifest = Manifest.read(folder)
            if faults := manifest.faults():
                problems += [f"{folder}: {fault}" for fault in faults]
            else:
                manifests[folder] = manifest
        except (OSError, ValueError) as error:
            problems.append(f"{folder}: has no manifest that can be read ({error})")
    tasks = [
        Task(folder, manifest, split, name)
        for folder, manifest in manifests.items()
        for split in SPLITS
        for name in manifest.splits[split].sha256
    ]
    counts: dict[tuple[Path, str], Counter[str]] = {}
    sizes: Counter[tuple[Path, str]] = Counter()
    decoded: Counter[Path] = Counter()
    wrong = {folder: _names(folder, manifest) for folder, manifest in manifests.items()}
    for task, checked in crew.map(_check, tasks):
        counts.setdefault((task.folder, task.split), Counter()).update(checked.images_per_class)
        sizes[task.folder, task.split] += checked.size_bytes
        decoded[task.folder] += checked.decoded
        wrong[task.folder] += [f"{task.folder}: {problem}" for problem in checked.problems]
    for folder, manifest in manifests.items():
        for split, listed in manifest.splits.items():
            there, where = dict(counts.get((folder, split), {})), f"{folder}: {split}"
            wrong[folder] += _differences(
                where, listed.images_per_class, there, "the manifest says"
            )
            if not wrong[folder] and sizes[folder, split] != listed.bytes:
                wrong[folder].append(
                    f"{where}: {sizes[folder, split]} bytes; the manifest says {listed.bytes}"
                )
        if not wrong[folder]:
            images = sum(split.images for split in manifest.splits.values())
            skipped = sum(len(split.skipped) for split in manifest.splits.values())
            whole = (
                f"{folder}: whole: {images} images, {decoded[folder]} of them decoded, {skipped}"
                " skipped"
            )
            print(printable(whole), flush=True)
        problems += sorted(wrong[folder])
    return problems + _compare_forms(manifests)


def _check(task: Task) -> Checked:
    form = registry.member("forms", task.manifest.form)
    split = task.manifest.splits[task.split]
    every = max(1, min(DECODE_EVERY, split.images // DECODE_AT_LEAST))
    data = task.manifest.data(task.folder)
    try:
        if (
            file := data / task.name
        ).is_file() and file.stat().st_size > split.bytes:  # of holes, it may be endless
            return Checked(
                problems=[
                    f"{task.name}: is larger than the whole split {task.split}, {split.bytes} bytes"
                ]
            )
        checked: Checked = form.check(
            data,
            task.name,
            split.sha256[task.name],
            task.manifest.classes,
            every,
            set(split.skipped),
        )
    except OSError as error:
        where = Path(error.filename or task.name)
        where = where.relative_to(data) if where.is_relative_to(data) else where
        return Checked(problems=[f"{where}: cannot be read: {error.strerror}"])
    return checked


def _names(folder: Path, manifest: Manifest) -> list[str]:
    """Return parts that are not in the manifest, and a misleading index, one line each.

    Loaders would read them.
    """
    form, data = registry.member("forms", manifest.form), manifest.data(folder)
    try:
        extra = {
            n
            for split, part in manifest.splits.items()
            for n in form.part_names(data, split) - part.sha256.keys()
        }
        problems: list[str] = form.check_index(folder, manifest)
    except OSError as error:
        return [f"{folder}: {error.filename}: cannot be read: {error.strerror}"]
    return [f"{folder}: {name}: is not in the manifest" for name in sorted(extra)] + problems


def _differences(
    where: str, listed: dict[str, int], counted: dict[str, int], who: str
) -> list[str]:
    """Return at most three classes whose counts differ, by name, one line each."""
    names = sorted(
        name
        for name in listed.keys() | counted.keys()
        if listed.get(name, 0) != counted.get(name, 0)
    )
    lines = [
        f"{where}: class {n}: {counted.get(n, 0)} images; {who} {listed.get(n, 0)}"
        for n in names[:3]
    ]
    return lines + ([f"{where}: and {len(names) - 3} more classes"] if len(names) > 3 else [])


def _compare_forms(manifests: dict[Path, Manifest]) -> list[str]:
    problems: list[str] = []
    first: dict[str, tuple[Path, Manifest]] = {}
    for folder, manifest in manifests.items():
        other, reference = first.setdefault(manifest.dataset, (folder, manifest))
        for split in SPLITS:
            there, here = (m.splits[split].images_per_class for m in (reference, manifest))
            problems += _differences(f"{folder}: {split}", there, here, f"{other} has")
    return problems
