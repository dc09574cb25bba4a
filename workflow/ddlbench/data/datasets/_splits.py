"""Which folders and shards are for training, and which for validation, as people name them.

`train`, `training`; `val`, `valid`, `validation`, and where there are none of these, `dev` or
`test`. A shard says it anywhere in its name: `imagenet1k-validation-00.tar`. What cannot be told is
refused: pictures for validation must not be trained on.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddlbench.data import pictures
from ddlbench.data.source import SourceError

TRAIN = ("train", "training")
VALIDATION = (
    "val",
    "valid",
    "validation",
    "dev",
    "test",
    "testing",
)  # the first that there is, is taken
ONLY_SPLITS = VALIDATION[:3]  # nobody's class is called so
WORDS = (*TRAIN, *VALIDATION)


@dataclass(frozen=True)
class Layout:
    """Where the pictures of each split lie: folders of class folders, or shards.

    Without `val` some of `train` are for validation. `unused` are parts that are used for neither.
    """

    train: tuple[Path, ...]
    val: tuple[Path, ...] = ()
    unused: tuple[str, ...] = ()


def of_folders(folder: Path) -> Layout:
    """Return the layout of class folders. Raises SourceError, OSError."""
    folders = {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()}
    named: dict[str, Path] = {}
    for name, path in folders.items():
        if name.lower() in WORDS:
            if name.lower() in named:
                raise SourceError(
                    f"{path}: is the same split as {named[name.lower()].name}; remove one of them"
                )
            named[name.lower()] = path
    whole = {word: path for word, path in named.items() if holds_folders(path)}
    train = [whole[word] for word in TRAIN if word in whole]
    if len(train) > 1:
        raise SourceError(f"{train[1]}: is the same split as {train[0].name}; remove one of them")
    val = [whole[word] for word in VALIDATION if word in whole]
    if not (train and val):
        flat = [
            path for word, path in named.items() if word in (VALIDATION if train else ONLY_SPLITS)
        ]
        flat = [path for path in flat if path not in val and _holds_pictures(path)]
        if flat:
            raise SourceError(
                f"{flat[0]}: holds pictures and no class folders, so classes are unknown; sort them"
                " into class folders, or name a folder without it"
            )
    if not train:
        return Layout(tuple(val[:1] or [folder]), unused=tuple(path.name for path in val[1:]))
    return Layout((train[0],), tuple(val[:1]), tuple(path.name for path in val[1:]))


def holds_folders(folder: Path) -> bool:
    """Tell whether a folder holds class folders; the folder of a class holds pictures."""
    return any(
        path.is_dir() and not pictures.is_ignored_folder(path.name) for path in folder.iterdir()
    )


def _holds_pictures(folder: Path) -> bool:
    return any(pictures.has_picture_name(path.name) for path in folder.iterdir())


def of_shards(folder: Path, shards: Sequence[Path]) -> Layout:
    """Return the layout of shards, by the folders that they lie in and by their names.

    Raises SourceError.
    """
    words = {path: _words(path, folder) for path in shards}
    shared = (
        set.intersection(*words.values()) if len(shards) > 1 else set()
    )  # of the set's own name
    sides: dict[str, list[Path]] = {word: [] for word in ("train", *VALIDATION, "")}
    for path, in_name in words.items():
        sides[_split_in_name(path, (in_name - shared) or in_name)].append(path)
    val = [word for word in VALIDATION if sides[word]]
    if not val:
        return Layout(tuple(sorted([*sides["train"], *sides[""]])))
    if sides[""]:
        allowed = (
            "names with train or val (training, valid, validation, dev, test), as other names here"
            " have"
        )
        raise SourceError(f"{sides[''][0]}: belongs to neither split; allowed: {allowed}")
    taken = [word for word in val if word in ONLY_SPLITS] or val[:1]
    if not sides["train"]:
        return Layout(tuple(sorted(path for word in val for path in sides[word])))
    unused = tuple(path.name for word in val if word not in taken for path in sides[word])
    return Layout(
        tuple(sides["train"]), tuple(sorted(path for word in taken for path in sides[word])), unused
    )


def _words(path: Path, folder: Path) -> set[str]:
    """Return the words of WORDS in the name of a shard's folder, else in the shard's own name."""
    if path.parent != folder and path.parent.name.lower() in WORDS:
        return {path.parent.name.lower()}
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", path.stem)
    return {part.lower() for part in parts} & {*WORDS}


def _splits_of(words: Iterable[str]) -> frozenset[str]:
    """Return the splits that these words stand for, `train` or `val`."""
    return frozenset("train" if word in TRAIN else "val" for word in words)


def _split_in_name(path: Path, words: set[str]) -> str:
    """Return the split in a name: `train`, a word of VALIDATION, or "".

    Raises SourceError if the name contains both.
    """
    if len(_splits_of(words)) > 1:
        raise SourceError(
            f"{path}: its name says {' and '.join(sorted(words))}; allowed: one split"
        )
    if words & {*TRAIN}:
        return "train"
    return next((word for word in VALIDATION if word in words), "")
