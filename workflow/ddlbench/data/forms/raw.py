"""raw: class folders of image files, `train/<class>/<file>` and `val/<class>/<file>`; what every
loader reads.

A source that is such a tree already is used where it lies: its files are read and digested, none is
copied.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ddlbench.core.files import read_bytes
from ddlbench.data.form_parts import Checked, Part, Written, file_fault, pictures
from ddlbench.data.forms import _kept
from ddlbench.data.manifest import Manifest, sha256
from ddlbench.data.pictures import has_picture_name, is_ignored_folder
from ddlbench.data.source import Entry, Source, SourceError

PARTS = "class folders"
FORMAT = 1  # raise it when the same pictures are to be written in another way
LABEL_OFFSET = 0
IN_PLACE = True
BLOCK_BYTES = 4096  # on most file systems
KEPT_AS = "files"


def parts(split: str, entries: list[Entry], classes: tuple[str, ...], seed: int) -> list[Part]:
    """Return one class folder per class, also for classes without a picture."""
    folders: list[list[Entry]] = [[] for _ in classes]
    for entry in entries:
        folders[entry.label].append(entry)
    return [
        Part(split, f"{split}/{name}", inside)
        for name, inside in zip(classes, folders, strict=True)
    ]


def needs(images: dict[str, int], classes: int, picture_bytes: float) -> tuple[float, int]:
    """Estimate (bytes on disk, files and folders) of a form: each picture has a file of whole
    blocks, each class a folder.
    """
    total = sum(images.values())
    # A file's last block is half full on the mean; a small one has a block all the same.
    size = max(BLOCK_BYTES, picture_bytes + BLOCK_BYTES / 2)
    return (
        total * size,
        total + len(images) * (classes + 2) + 3,
    )  # with a list of each split's files


def write(part: Part, source: Source, folder: Path, on_error: str) -> Written:
    """Write `folder/<split>/<class>`, or only read it if the source is a tree that is used in
    place.

    Raises BadImage, SourceError (two files of one name; a tree that holds more than its source
    names), OSError.
    """
    tree = source.tree
    digests: dict[str, str] = {}
    skipped: dict[str, str] = {}
    size = 0
    if tree is None:
        (folder / part.name).mkdir(parents=True)
    for entry, picture in pictures(part, source, on_error, skipped):
        if entry.filename in digests:
            raise SourceError(f"{entry.path}: {part.name}/{entry.filename} appears twice")
        encoded = picture.encoded
        if tree:  # as it lies: it cannot be repaired
            encoded = read_bytes(entry.path)
        else:
            _write(folder / part.name / entry.filename, encoded)
        digests[entry.filename] = sha256(encoded)
        size += len(encoded)
    if tree:
        # The loader reads what lies there: it must be what was read here.
        for name in files(tree / part.name, (key.rpartition("/")[2] for key in skipped)):
            if name not in digests:
                raise SourceError(
                    f"{tree / part.name / name}: is not a picture of the data set; remove it"
                )
    name = part.name.partition("/")[2]
    return Written({name: len(digests)}, size, {f"{part.name}/": _digest(digests.items())}, skipped)


def files(folder: Path, skipped: Iterable[str] = ()) -> list[str]:
    """List the names of a class folder's pictures, sorted, without those that were skipped."""
    left_out = set(skipped)
    if not folder.is_dir():  # a tree in place need not have a folder for a class without a picture
        return []
    with os.scandir(folder) as entries:
        return sorted(
            f.name for f in entries if has_picture_name(f.name) and f.name not in left_out
        )


class Files:
    """The files of a split, by class and name, and their labels: classes' positions in the
    manifest.

    Arrays, and no object per file: a million strings are 100 MB in each process, and Python writes
    to each that it reads. `list` is the file of `listed` that DALI reads too; None if there could
    be none.
    """

    def __init__(self, folder: Path, split: str) -> None:
        import numpy as np

        manifest = Manifest.read(folder)
        self.root = f"{manifest.data(folder)}/{split}"
        self.lines, self.list = listed(folder, manifest, split)
        a_piece = 1 << 24  # all parts together would be as large again
        pieces = range(0, len(self.lines), a_piece)
        ends = [np.flatnonzero(self.lines[n : n + a_piece] == ord("\n")) + n for n in pieces]
        self.ends = np.concatenate([np.array([-1]), *ends])
        counts = manifest.splits[split].images_per_class
        self.labels = np.repeat(
            np.arange(len(manifest.classes)), [counts.get(name, 0) for name in manifest.classes]
        )
        if len(self) != len(self.labels):
            raise RuntimeError(
                f"{self.list}: lists {len(self)} files, the manifest says {len(self.labels)}:"
                " remove it"
            )

    def __len__(self) -> int:
        return len(self.ends) - 1

    def name(self, index: int) -> str:
        """Return the path of a picture's file."""
        line = self.lines[self.ends[index] + 1 : self.ends[index + 1]].tobytes()
        return f"{self.root}/{os.fsdecode(line.rpartition(b' ')[0])}"

    def read(self, index: int) -> bytes:
        """Read a picture's file. Raises OSError."""
        with open(self.name(index), "rb") as file:  # noqa: PTH123 (a Path is as much work as reading a small file)
            return file.read()


samples = Files


def list_path(folder: Path, manifest: Manifest, split: str) -> Path:
    """Return the path of the list of a split's files.

    It lies beside the manifest and belongs to this manifest only. It has one line `<class>/<file>
    <label>` for each picture, by class and name; labels count from 0. DALI reads it as it is.
    """
    return _kept.path(folder, manifest, split, KEPT_AS)


def listed(folder: Path, manifest: Manifest, split: str) -> tuple[Any, Path | None]:
    """Return the lines of a split's list, one after the other, as uint8, and the file that they are
    mapped from.

    Where there is no list, the folders are listed, and the path is None. `index` makes the list,
    not each rank. Raises ValueError if the folders do not hold as many files as the manifest says.
    """
    import numpy as np

    path = list_path(folder, manifest, split)
    lines = _kept.mapped(path)
    if lines is not None:
        return lines, path
    return np.frombuffer(_list(folder, manifest, split), np.uint8), None


def _lines(folder: Path, manifest: Manifest, split: str) -> Iterator[bytes]:
    contents, root = manifest.splits[split], manifest.data(folder) / split
    skipped: dict[str, list[str]] = {}
    for key in contents.skipped:
        name, _, file = key.partition("/")
        skipped.setdefault(name, []).append(file)
    count = 0
    for label, name in enumerate(manifest.classes):
        inside = files(root / name, skipped.get(name, ()))
        count += len(inside)
        for file in inside:
            if "\n" in file:
                raise ValueError(
                    f"{root / name}: a file name contains a line break: {file!r}; rename it"
                )
            yield os.fsencode(f"{name}/{file} {label}\n")
    if count != contents.images:
        raise ValueError(f"{root}: {count} files, the manifest says {contents.images}")


def _list(folder: Path, manifest: Manifest, split: str) -> bytes:
    return b"".join(_lines(folder, manifest, split))


_LISTS = _kept.KeptList(KEPT_AS, _list)
index, check_index = _LISTS.index, _LISTS.check_index


def part_names(folder: Path, split: str) -> set[str]:
    """Return the parts of a split that lie in the folder, as the manifest names them."""
    with os.scandir(folder / split) as entries:
        return {
            f"{split}/{f.name}/" for f in entries if not is_ignored_folder(f.name) and f.is_dir()
        }


def check(
    folder: Path, name: str, digest: str, classes: tuple[str, ...], every: int, skipped: set[str]
) -> Checked:
    """Read every file of a class folder and compare the digest; decode one in `every` pictures."""
    class_ = _class(name)
    checked = Checked({class_: 0})
    digests = []
    left_out = [s.rpartition("/")[2] for s in skipped if s.startswith(f"{class_}/")]
    for number, file in enumerate(files(folder / name, left_out)):
        encoded = read_bytes(folder / name / file)
        checked.size_bytes += len(encoded)
        digests.append((file, sha256(encoded)))
        checked.count(f"{name}{file}", class_, number % every == 0, encoded)
    if _digest(digests) != digest:
        checked.problems.append(
            f"{name}: its files are not those of the manifest (SHA-256 of names and contents)"
        )
    return checked


def glance(folder: Path, manifest: Manifest, finished_ns: int) -> list[str]:
    """Check that the class folders of the manifest are there, and that no file was added to them,
    removed or renamed after the form was finished. Return what is wrong, one line each. Their files
    are not looked at: a million of them take minutes.
    """
    problems = []
    for contents in manifest.splits.values():
        for name in contents.sha256:
            if contents.images_per_class.get(_class(name), 0):
                what = file_fault(folder / name, finished_ns, stat.S_ISDIR)
                problems += [f"{name}: {what}"] if what else []
    return problems


def _class(name: str) -> str:
    """Return the class in the name of a part, which the manifest writes as `train/n01440764/`."""
    return name.rstrip("/").partition("/")[2]


def _digest(digests: Iterable[tuple[str, str]]) -> str:
    """Return the SHA-256 of a class folder.

    It covers every file's name and content: what `sha256sum *` prints, sorted by name.
    """
    return sha256("".join(f"{digest}  {name}\n" for name, digest in sorted(digests)).encode())


def _write(path: Path, data: bytes) -> None:
    # Without Python's file objects: there are millions of files.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)
