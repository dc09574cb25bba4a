"""A data set that people describe in `config/datasets/<name>.yaml`: class folders, or WebDataset shards.

Its numbers are found when it is prepared; until then the plan guesses them from a look at the folder.
"""

import json
from contextlib import suppress
from pathlib import Path

from ddlbench.core.plural import count_of
from ddlbench.data.datasets import _webdataset
from ddlbench.data.datasets._files import absolute
from ddlbench.data.datasets._tree import Every, Tree, class_folders
from ddlbench.data.manifest import SPLITS
from ddlbench.data.source import Place, Source, SourceError
from ddlbench.settings.dataset import FOLDER, DatasetFile, load_dataset

# Where nothing can be seen of the folder from here.
UNSEEN = ({"train": 10_000, "val": 1000}, 10)
HINT = "allowed: class folders or shards (*.tar), in train and val, or in one folder"


class Own:
    """A `Dataset`; IMAGES, NUM_CLASSES and PICTURE_BYTES are guesses. Raises ConfigError if its file is wrong."""

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
        """The tree or the shards, where they lie; says what is for validation if that is not said there.

        Raises SourceError.
        """
        keys = DatasetFile(**json.loads(place.given)) if place.given else self.file
        folder = absolute(keys.folder)
        described, every, whole = {"source": str(folder)}, None, None
        if not _splits(folder):
            every, whole = Every(keys.validation_every, str(self.path)), _whole(folder)
            described["validation"] = f"one picture in {every.count} of each class, by name"
            print(f"{self.name}: {folder} has none for validation: {described['validation']}, is taken", flush=True)
        if _webdataset.shards(folder):
            return _webdataset.opened(folder, described, every)
        return Tree(class_folders(whole or folder / "train", HINT), described, folder, HINT, every, whole)

    def expected(self, given: str | None) -> tuple[dict[str, int], int]:
        """(images per split, classes): a guess."""
        return self.IMAGES, self.NUM_CLASSES

    def in_place(self, given: str | None) -> bool:
        """Whether the folder holds class folders in train and val."""
        folder = absolute(self.file.folder)
        return _splits(folder) and not _webdataset.shards(folder)

    def remarks(self) -> list[str]:
        """What people must know of a plan before the set is prepared, one line each."""
        file, images, classes = self.path, self.IMAGES, self.NUM_CLASSES
        wrong = [f"{file}: folder, as seen from here: {self.problem}"] if self.problem else []
        guess = f"{classes} classes and {count_of(images['train'], 'picture')} for training"
        return [*wrong, f"{file}: {self.name} is not prepared; until then the plan guesses: {guess}"]

    def _guessed(self) -> tuple[dict[str, int], int]:
        """From the number of class folders and of the files in the first one, or from the bytes of shards.

        Raises SourceError, or OSError.
        """
        folder = absolute(self.file.folder)
        if shards := _webdataset.shards(folder):
            total, classes = int(sum(file.stat().st_size for file in shards) / self.PICTURE_BYTES), UNSEEN[1]
        else:
            top = folder / "train" if _splits(folder) else _whole(folder)
            names = class_folders(top, HINT)
            total, classes = len(names) * sum(1 for _ in (top / names[0]).iterdir()), len(names)
        val = max(1, total // self.file.validation_every)
        return {"train": max(1, total if _splits(folder) else total - val), "val": val}, classes


def _splits(folder: Path) -> bool:
    """Whether a folder has pictures for both splits, each by its name."""
    shards = _webdataset.shards(folder)
    return all(_has(folder / split) or any(file.name.startswith(split) for file in shards) for split in SPLITS)


def _has(folder: Path) -> bool:
    """Whether a folder is one of class folders or shards; that of a class holds pictures only."""
    with suppress(OSError):
        return any(path.suffix == ".tar" or path.is_dir() for path in folder.iterdir() if path.name[0] != ".")
    return False


def _whole(folder: Path) -> Path:
    """Where all pictures lie if there are none for one split."""
    return next((folder / split for split in SPLITS if _has(folder / split)), folder)
