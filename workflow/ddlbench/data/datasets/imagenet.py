"""imagenet: the 1000 classes of ILSVRC 2012, from a tree of class folders or from the official
archives.

data.sources.imagenet names the folder. It holds either `train/<synset>/*.JPEG` and
`val/<synset>/*.JPEG`, which are then used where they lie, or ILSVRC2012_img_train.tar and
ILSVRC2012_img_val.tar as published, with the validation pictures' classes:
ILSVRC2012_devkit_t12.tar.gz, or a text file with one synset per line in the order of the file
names. Labels follow the sorted synsets. Counts: Russakovsky et al. 2015,
doi:10.1007/s11263-015-0816-y.
"""

import io
import tarfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.data import pictures
from ddlbench.data.datasets import Fixed, _tar
from ddlbench.data.datasets._files import (
    absolute,
    check_once,
    checked,
    one_line,
    read_stretch,
    read_words,
)
from ddlbench.data.datasets._tree import Tree, check_unique, class_folders
from ddlbench.data.source import Entry, Picture, Place, Source, SourceError

IMAGES = {"train": 1281167, "val": 50000}
NUM_CLASSES = 1000
expected = Fixed(IMAGES, NUM_CLASSES).expected
# Of both archives as they are published, 147 897 477 120 and 6 744 924 160 bytes (SIZES in
# CompVis/taming-transformers, taming/data/imagenet.py), a picture.
PICTURE_BYTES = (147_897_477_120 + 6_744_924_160) / (1281167 + 50000)
TRAIN, VAL = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"
# Published: https://image-net.org/challenges/LSVRC/2012/2012-downloads.php and torchvision,
# datasets/imagenet.py.
MD5 = {
    TRAIN: "1d675b47d978889d74fa0da5fadfb00e",
    VAL: "29b22e2961454d5413ddabcf34fc5622",
    DEVKIT: "fa75699e90414af021442c21a62c3abf",
}
# The second is the name of the list that TF-slim publishes (research/slim/datasets).
SYNSETS = ("validation_synsets.txt", "imagenet_2012_validation_synset_labels.txt")
LAYOUT = (
    "data.sources.imagenet is a folder with train/<synset>/*.JPEG and val/<synset>/*.JPEG, "
    f"or with {TRAIN}, {VAL} and one of {', '.join((DEVKIT, *SYNSETS))}"
)
NEEDS = LAYOUT


def open_source(place: Place) -> Source:
    """Return a tree if the folder holds one, else the archives, if they are the published ones.

    Raises SourceError.
    """
    if place.given is None:
        raise SourceError(f"imagenet: its folder is not set; {LAYOUT}")
    folder = absolute(place.given)
    if (folder / "train").is_dir():
        return Tree(
            class_folders(folder / "train", LAYOUT), {"source": str(folder)}, folder, LAYOUT
        )
    if not (folder / TRAIN).is_file():
        raise SourceError(f"{folder}: holds neither train/ nor {TRAIN}; {LAYOUT}")
    there = [name for name in (TRAIN, VAL) if (folder / name).is_file()]
    for name in there:
        check_once(folder / name, MD5[name], place.cache)
    with _tar.opened(folder / TRAIN) as stream:
        synsets = tuple(
            sorted(_synset(m, folder / TRAIN) for m in _tar.members(stream, str(folder / TRAIN)))
        )
    if not synsets:
        raise SourceError(f"{folder / TRAIN}: holds no archives of synsets")
    check_unique(synsets, f"{folder / TRAIN}", "inner archives")
    archives = {name: f"{(folder / name).stat().st_size} bytes" for name in there}
    return Archives(synsets, {"source": str(folder), "archives": archives}, folder)


def in_place(given: str | None) -> bool:
    """Tell whether the folder holds a tree of class folders."""
    return given is not None and (absolute(given) / "train").is_dir()


@dataclass(frozen=True)
class Archives:
    """The archives as published: one inner archive per synset for training, one flat archive for
    validation.
    """

    classes: tuple[str, ...]
    described: dict[str, Any]
    folder: Path
    tree: Path | None = None

    def entries(self, split: str) -> list[Entry]:
        """List the pictures by synset for training, by name for validation, from one pass over the
        headers. Raises SourceError.
        """
        return self._train() if split == "train" else self._val()

    def read(self, entry: Entry) -> Picture:
        """Return the member's picture, converted where needed. Raises BadImage."""
        return pictures.repaired(read_stretch(entry), f"{entry.path}: {entry.filename}")

    def _train(self) -> list[Entry]:
        path = self.folder / TRAIN
        labels = {name: label for label, name in enumerate(self.classes)}
        by_class: list[list[Entry]] = [[] for _ in self.classes]
        with _tar.opened(path) as stream:
            # Listed before any is entered: both use the stream's position.
            for inner in list(_tar.members(stream, str(path))):
                label, name = labels[_synset(inner, path)], f"{path}: {inner.name}"
                there = _tar.members(stream, name, inner.offset, inner.offset + inner.size)
                by_class[label] = _entries(there, str(path), label)
                if not by_class[label]:
                    raise SourceError(f"{name}: holds no pictures")
                check_unique((e.filename for e in by_class[label]), name, "members")
        return [entry for entries in by_class for entry in entries]

    def _val(self) -> list[Entry]:
        path = self.folder / VAL
        labels = {name: label for label, name in enumerate(self.classes)}
        synsets, source = self._val_synsets()
        with _tar.opened(path) as stream:
            entries = sorted(_entries(_tar.members(stream, str(path)), str(path), 0))
        if not entries:
            raise SourceError(f"{path}: holds no pictures")
        check_unique((e.filename for e in entries), str(path), "members")
        if len(entries) != len(synsets):
            raise SourceError(
                f"{source}: {len(synsets)} lines for the {len(entries)} pictures in {path}"
            )
        for synset in synsets:
            if synset not in labels:
                raise SourceError(f"{source}: {synset} is not a class of train")
        return [
            entry._replace(label=labels[synset])
            for entry, synset in zip(entries, synsets, strict=True)
        ]

    def _val_synsets(self) -> tuple[list[str], Path]:
        """Return the synset of each validation picture in the order of names, and the file that
        lists them.
        """
        for name in SYNSETS:
            if (self.folder / name).is_file():
                return read_words(self.folder / name), self.folder / name
        if (self.folder / DEVKIT).is_file():
            return _devkit_synsets(self.folder / DEVKIT), self.folder / DEVKIT
        raise SourceError(f"{self.folder}: the classes of {VAL} are unknown; {LAYOUT}")


def _synset(inner: _tar.Member, path: Path) -> str:
    """Return the class whose pictures an inner archive holds, from the archive's name.

    Raises SourceError.
    """
    if not inner.name.endswith(".tar") or inner.name.startswith("."):
        raise SourceError(
            f"{path}: member {inner.name!r} is not the archive of a synset, <synset>.tar"
        )
    return inner.name.removesuffix(".tar")


def _entries(members: Iterable[_tar.Member], path: str, label: int) -> list[Entry]:
    """Return an entry for each member that is named like a picture."""
    return [
        Entry(m.name, label, path, m.offset, m.size)
        for m in members
        if pictures.has_picture_name(m.name)
    ]


def _devkit_synsets(path: Path) -> list[str]:
    """Read one synset per validation picture, in the order of the pictures' names (the kit's
    readme.txt describes the format).

    Raises SourceError if the kit is another or damaged.
    """
    from scipy.io import loadmat  # arrays and text only, nothing that runs

    checked(path, MD5[DEVKIT])
    folder = "ILSVRC2012_devkit_t12/data"
    try:
        with tarfile.open(path, "r:gz") as kit:
            truth = (
                _member(kit, f"{folder}/ILSVRC2012_validation_ground_truth.txt")
                .decode("ascii")
                .split()
            )
            synsets = loadmat(io.BytesIO(_member(kit, f"{folder}/meta.mat")), squeeze_me=True)[
                "synsets"
            ]
        names = {
            int(number): str(name)
            for number, name in zip(synsets["ILSVRC2012_ID"], synsets["WNID"], strict=True)
        }
        return [names[int(number)] for number in truth]
    except (tarfile.TarError, EOFError, KeyError, ValueError, zlib.error, OSError) as error:
        raise SourceError(f"{path}: cannot be read: {one_line(error)}") from None


def _member(kit: tarfile.TarFile, name: str) -> bytes:
    stream = kit.extractfile(name)
    if stream is None:
        raise KeyError(name)
    return stream.read()
