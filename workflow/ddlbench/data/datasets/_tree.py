"""A tree of class folders of pictures, and what data sets that are no files of ours share."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.data import pictures
from ddlbench.data.datasets._files import TO_THE_END, read_stretch
from ddlbench.data.source import Entry, Picture, SourceError

WITHIN = "--"  # stands in a picture's name for the folder of its class that it lies in
DEEPEST = 8  # folders within a class


@dataclass(frozen=True)
class Every:
    """The rule that takes one picture in `count` of each class for validation; see `file`."""

    count: int
    file: str

    def part(self, entries: Iterable[Entry], split: str) -> list[Entry]:
        """Return the entries of one split, in the order given.

        Raises SourceError if none is left for it.
        """
        counts: Counter[int] = Counter()
        kept = []
        for entry in entries:
            counts[entry.label] += 1
            if (counts[entry.label] % self.count == 0) == (split == "val"):
                kept.append(entry)
        if not kept:
            most = max(counts.values(), default=0)
            remedy = (
                f"allowed: at most {most}"
                if most > 1
                else "give pictures for validation in a folder val"
            )
            raise SourceError(
                f"{self.file}: validation_every: {self.count}: no class has so many pictures;"
                f" {remedy}"
            )
        return kept


@dataclass(frozen=True)
class Tree:
    """Class folders of pictures in `<folder>/train` and `<folder>/val`, which are then used where
    they lie.

    With `every`, all lie in `whole`, and it chooses those for validation. `named` are folders of
    splits that have other names, `in_place` whether all loaders can read what lies there as it is.
    The sizes of pictures are not asked for: that takes longer than to read all names. `hint` ends
    complaints about the tree.
    """

    classes: tuple[str, ...]
    described: dict[str, Any]
    folder: Path
    hint: str
    every: Every | None = None
    whole: Path | None = None
    named: tuple[tuple[str, str], ...] = ()
    in_place: bool = True

    @property
    def tree(self) -> Path | None:
        """Return the folder, if both splits lie there under their names."""
        return self.folder if self.every is None and not self.named and self.in_place else None

    def entries(self, split: str) -> list[Entry]:
        """List the pictures by class, then by name, including those in subfolders of a class; files
        that are not named like pictures are passed over.

        Raises SourceError if a class folder is empty or none of train's, or two names differ in
        their case only.
        """
        labels = {name: label for label, name in enumerate(self.classes)}
        entries = []
        top = self.whole or self.folder / dict(self.named).get(split, split)
        junk: Counter[str] = Counter()
        for name in class_folders(top, self.hint):
            folder = top / name
            if name not in labels:
                raise SourceError(f"{folder}: {name} is not a class of train")
            found = sorted(pictures_in(folder, self.hint, junk))
            if not found:
                raise SourceError(f"{folder}: holds no pictures ({', '.join(pictures.SUFFIXES)})")
            check_unique((file for file, _ in found), str(folder), "files")
            if self.tree and (
                inner := next((path for file, path in found if path != f"{folder}/{file}"), None)
            ):
                raise SourceError(
                    f"{inner}: lies in a folder of its class; move it up, or describe the set by a"
                    " file"
                )
            entries += [Entry(file, labels[name], path, 0, TO_THE_END) for file, path in found]
        if junk:
            what = ", ".join(f"{name} ({count} times)" for name, count in sorted(junk.items()))
            print(f"{top}: folders within classes are ignored: {what}", flush=True)
        return entries if self.every is None else self.every.part(entries, split)

    def read(self, entry: Entry) -> Picture:
        """Return the file's picture, converted where needed. Raises BadImage."""
        return pictures.repaired(read_stretch(entry), entry.path)


def pictures_in(
    folder: Path, hint: str, junk: Counter[str], depth: int = 0
) -> Iterator[tuple[str, str]]:
    """Yield the pictures of a class, each with its path; one in a folder of the class has that in
    its name. Links that lead nowhere are among them. `junk` counts folders that are passed over.
    Raises SourceError.
    """
    if depth > DEEPEST:
        raise SourceError(
            f"{folder}: lies {depth} folders deep in its class: is there a loop of symbolic links?"
        )
    try:
        with os.scandir(folder) as listing:
            there = [*listing]
    except OSError as error:
        raise SourceError(f"{folder}: cannot be read: {error.strerror}; {hint}") from None
    for entry in there:
        name = entry.name
        if entry.is_dir():
            if pictures.is_ignored_folder(name):
                junk[name] += 1
                continue
            for inner, path in pictures_in(folder / name, hint, junk, depth + 1):
                yield f"{name}{WITHIN}{inner}", path
        elif pictures.has_picture_name(name) or (
            name.lower().endswith(pictures.UNREAD) and not name.startswith(".")
        ):
            yield name, f"{folder}/{name}"


def is_plain(top: Path, hint: str) -> bool:
    """Tell whether every loader reads the class folders as they are: JPEG and PNG files, none in a
    subfolder of its class.
    """
    junk: Counter[str] = Counter()
    for name in class_folders(top, hint):
        for file, path in pictures_in(top / name, hint, junk):
            if not file.lower().endswith(pictures.PLAIN) or path != f"{top / name}/{file}":
                return False
    return True


def class_folders(folder: Path, hint: str) -> tuple[str, ...]:
    """List the class folders in a folder, sorted. Raises SourceError if there are none."""
    try:
        with os.scandir(folder) as listing:
            names = sorted(
                file.name
                for file in listing
                if file.is_dir() and not pictures.is_ignored_folder(file.name)
            )
    except OSError as error:
        raise SourceError(f"{folder}: cannot be read: {error.strerror}; {hint}") from None
    if not names:
        raise SourceError(f"{folder}: holds no class folders; {hint}")
    return tuple(names)


def check_unique(names: Iterable[str], where: str, what: str) -> None:
    """Raise SourceError if two names are the same, or would be on a file system that ignores
    case.
    """
    for name, times in Counter(n.casefold() for n in names).most_common(1):
        if times > 1:
            raise SourceError(f"{where}: {times} {what} have the same name: {name}")
