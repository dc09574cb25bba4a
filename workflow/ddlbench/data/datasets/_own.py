"""A data set that people describe in `config/datasets/<name>.yaml`: class folders, or WebDataset
shards.

Its numbers are found when it is prepared; until then the plan guesses them from a look at the
folder.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ddlbench.core.formatting import count_of
from ddlbench.data.datasets import _splits, _webdataset
from ddlbench.data.datasets._files import absolute
from ddlbench.data.datasets._splits import Layout
from ddlbench.data.datasets._tree import Every, Tree, class_folders, is_plain
from ddlbench.data.source import Place, Source, SourceError
from ddlbench.settings.dataset import FOLDER, DatasetFile, load_dataset

# Where nothing can be seen of the folder from here.
UNSEEN = ({"train": 10_000, "val": 1000}, 10)
MOST_NAMES = 3
HINT = "allowed: class folders or shards (*.tar), in train and val, or in one folder"


class Own:
    """A `Dataset` that a user describes; IMAGES, NUM_CLASSES and PICTURE_BYTES are guesses.

    Raises ConfigError if its file is wrong.
    """

    NEEDS: str | None = None
    PICTURE_BYTES: float = 100_000  # about ImageNet's

    def __init__(self, name: str) -> None:
        self.name, self.path, self.file = name, FOLDER / f"{name}.yaml", load_dataset(name)
        self.problem: str | None = None  # of the folder, as seen from here
        try:
            self.IMAGES, self.NUM_CLASSES = self._guessed()
        except (SourceError, OSError) as error:
            (self.IMAGES, self.NUM_CLASSES), self.problem = UNSEEN, str(error)

    def open_source(self, place: Place) -> Source:
        """Return the tree or the shards, where they lie; print which part is for validation.

        Raises SourceError.
        """
        keys = DatasetFile(**json.loads(place.given)) if place.given else self.file
        folder = absolute(keys.folder)
        layout = _layout(folder)
        described: dict[str, object] = {"source": str(folder)}
        every = None if layout.val else Every(keys.validation_every, str(self.path))
        if every is not None:
            described["validation"] = f"one picture in {every.count} of each class, by name"
        shards = _webdataset.shards(folder)
        if not _has_usual_names(folder, layout):
            described["splits"] = {
                "train": _shown(_names(layout.train)),
                "val": _shown(_names(layout.val)),
            }
        print(f"{self.name}: {_describe(folder, layout, keys.validation_every)}", flush=True)
        if shards:
            return _webdataset.opened(layout, described, every)
        (whole,) = layout.train
        if every is not None:
            return Tree(class_folders(whole, HINT), described, folder, HINT, every, whole)
        usual = _has_usual_names(folder, layout)
        in_place = usual and all(is_plain(top, HINT) for top in (*layout.train, *layout.val))
        folders = () if usual else (("train", layout.train[0].name), ("val", layout.val[0].name))
        return Tree(
            class_folders(whole, HINT), described, folder, HINT, named=folders, in_place=in_place
        )

    def expected(self, given: str | None) -> tuple[dict[str, int], int]:
        """Return (images per split, classes): a guess."""
        return self.IMAGES, self.NUM_CLASSES

    def in_place(self, given: str | None) -> bool:
        """Tell whether the folder holds class folders in train and val."""
        folder = absolute(self.file.folder)
        with suppress(SourceError, OSError):
            layout = _layout(folder)
            return (
                bool(layout.val)
                and _has_usual_names(folder, layout)
                and not _webdataset.shards(folder)
            )
        return False

    def remarks(self) -> list[str]:
        """Return what people must know of a plan before the set is prepared, one line each."""
        file, images, classes = self.path, self.IMAGES, self.NUM_CLASSES
        wrong = [f"{file}: folder, as seen from here: {self.problem}"] if self.problem else []
        guess = f"{classes} classes and {count_of(images['train'], 'picture')} for training"
        folder = absolute(self.file.folder)
        with suppress(SourceError, OSError):
            wrong.append(
                f"{file}: {_describe(folder, _layout(folder), self.file.validation_every)}"
            )
        return [
            *wrong,
            f"{file}: {self.name} is not prepared; until then the plan guesses: {guess}",
        ]

    def _guessed(self) -> tuple[dict[str, int], int]:
        """Guess (images per split, classes) from the number of class folders and of the files in
        the first one, or from the bytes of shards.

        Raises SourceError, or OSError.
        """
        folder = absolute(self.file.folder)
        layout = _layout(folder)
        if shards := _webdataset.shards(folder):
            total, classes = (
                int(sum(file.stat().st_size for file in shards) / self.PICTURE_BYTES),
                UNSEEN[1],
            )
        else:
            (top,) = layout.train
            names = class_folders(top, HINT)
            total, classes = len(names) * sum(1 for _ in (top / names[0]).iterdir()), len(names)
        val = max(1, total // self.file.validation_every)
        return {"train": max(1, total if layout.val else total - val), "val": val}, classes


def _layout(folder: Path) -> Layout:
    """Find where the pictures of both splits lie. Raises SourceError, OSError."""
    try:
        shards = _webdataset.shards(folder)
        return _splits.of_shards(folder, shards) if shards else _splits.of_folders(folder)
    except OSError as error:
        raise SourceError(f"{folder}: cannot be read: {error.strerror}; {HINT}") from None


def _names(paths: Sequence[Path]) -> list[str]:
    return sorted(path.name for path in paths)


def _has_usual_names(folder: Path, layout: Layout) -> bool:
    """Tell whether the folders of the splits are called train and val, or there is none for
    validation.
    """
    if not layout.val:
        return True
    for split, paths in (("train", layout.train), ("val", layout.val)):
        for path in paths:
            begins = path.suffix == ".tar" and path.name.startswith(split)
            if path.name != split and path.parent.name != split and not begins:
                return False
    return True


def _describe(folder: Path, layout: Layout, every: int) -> str:
    """Describe where the pictures for training and for validation lie, and what is not used."""
    unused = f"; not used: {_shown(layout.unused)}" if layout.unused else ""
    if not layout.val:
        return (
            f"{folder} has no validation pictures: one picture in {every} of each class, by name,"
            f" is taken{unused}"
        )
    return (
        f"training: {_shown(_names(layout.train))}; validation:"
        f" {_shown(_names(layout.val))}{unused}"
    )


def _shown(names: Sequence[str]) -> str:
    return (
        ", ".join(names)
        if len(names) <= MOST_NAMES
        else f"{names[0]} to {names[-1]} ({len(names)})"
    )
