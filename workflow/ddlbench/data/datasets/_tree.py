"""A tree of class folders of pictures, and what data sets that are no files of ours share."""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.data import pictures
from ddlbench.data.datasets._files import TO_THE_END, read_stretch
from ddlbench.data.source import Entry, Picture, SourceError


@dataclass(frozen=True)
class Every:
    """The rule by which one picture in `count` of each class is for validation; `file` says so."""

    count: int
    file: str

    def part(self, entries: Iterable[Entry], split: str) -> list[Entry]:
        """Those of one split, in the order given. Raises SourceError if none is left for it."""
        counts: Counter[int] = Counter()
        kept = []
        for entry in entries:
            counts[entry.label] += 1
            if (counts[entry.label] % self.count == 0) == (split == "val"):
                kept.append(entry)
        if not kept:
            most = max(counts.values(), default=0)
            remedy = f"allowed: at most {most}" if most > 1 else "give pictures for validation in a folder val"
            raise SourceError(f"{self.file}: validation_every: {self.count}: no class has so many pictures; {remedy}")
        return kept


@dataclass(frozen=True)
class Tree:
    """Class folders of pictures in `<folder>/train` and `<folder>/val`, which are then used where they lie.

    With `every`, all lie in `whole`, and it chooses those for validation. The sizes of pictures are not asked for: that
    takes longer than to read all names. `hint` ends complaints about the tree.
    """

    classes: tuple[str, ...]
    described: dict[str, Any]
    folder: Path
    hint: str
    every: Every | None = None
    whole: Path | None = None

    @property
    def tree(self) -> Path | None:
        """The folder, if both splits lie there by their names."""
        return self.folder if self.every is None else None

    def entries(self, split: str) -> list[Entry]:
        """By class, then by name; files that are not named like pictures are passed over.

        Raises SourceError if a class folder is empty or none of train's, or two names differ in their case only.
        """
        labels = {name: label for label, name in enumerate(self.classes)}
        entries = []
        top = self.whole or self.folder / split
        for name in class_folders(top, self.hint):
            folder = top / name
            if name not in labels:
                raise SourceError(f"{folder}: {name} is no class of train")
            names = _listed(folder, lambda f: pictures.is_named_so(f.name) and f.is_file(), self.hint)
            if not names:
                raise SourceError(f"{folder}: holds no pictures ({', '.join(pictures.SUFFIXES)})")
            each_once(names, str(folder), "files")
            label, path = labels[name], str(folder)
            entries += [Entry(file, label, f"{path}/{file}", 0, TO_THE_END) for file in names]
        return entries if self.every is None else self.every.part(entries, split)

    def read(self, entry: Entry) -> Picture:
        """The file, mended if it has to be. Raises BadImage."""
        return pictures.mended(read_stretch(entry), entry.path)


def class_folders(folder: Path, hint: str) -> tuple[str, ...]:
    """The class folders in a folder, sorted. Raises SourceError if there are none."""
    names = _listed(folder, lambda f: f.is_dir() and not f.name.startswith("."), hint)
    if not names:
        raise SourceError(f"{folder}: holds no class folders; {hint}")
    return tuple(names)


def _listed(folder: Path, wanted: Callable[[os.DirEntry[str]], bool], hint: str) -> list[str]:
    """The names of what is wanted in a folder, sorted."""
    try:
        with os.scandir(folder) as listing:
            return sorted(file.name for file in listing if wanted(file))
    except OSError as error:
        raise SourceError(f"{folder}: cannot be read: {error.strerror}; {hint}") from None


def each_once(names: Iterable[str], where: str, what: str) -> None:
    """Raises SourceError if two names are the same, or would be on a file system that ignores case."""
    for name, times in Counter(n.casefold() for n in names).most_common(1):
        if times > 1:
            raise SourceError(f"{where}: {times} {what} of one name: {name}")
