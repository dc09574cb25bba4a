"""WebDataset shards of others: tar files in which the files of one sample follow each other and
share a key.

A sample has a picture (`.jpg`, `.png`, `.webp`, ...) and its class as text, or as a number, in
`.cls`; other files are passed over. Shards are read where they lie. Naming:
https://github.com/webdataset/webdataset.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from ddlbench.data import pictures
from ddlbench.data.datasets import _tar
from ddlbench.data.datasets._files import read_stretch
from ddlbench.data.datasets._splits import WORDS, Layout
from ddlbench.data.datasets._tree import Every
from ddlbench.data.manifest import SPLITS
from ddlbench.data.source import Entry, Picture, SourceError

LONGEST = 200  # bytes of a class's name


@dataclass(frozen=True)
class ShardSource:
    """A source of pictures in shards.

    `listed` has the pictures by split; the processes that prepare do without it.
    """

    classes: tuple[str, ...]
    described: dict[str, Any]
    listed: dict[str, list[Entry]] = field(repr=False, default_factory=dict)
    tree: None = None

    def entries(self, split: str) -> list[Entry]:
        """List the pictures of a split by class, then by shard and place in it."""
        return list(self.listed[split])

    def read(self, entry: Entry) -> Picture:
        """Return the member's picture, converted where needed. Raises BadImage."""
        return pictures.repaired(read_stretch(entry), f"{entry.path}: {entry.filename}")

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"listed": {}}


def shards(folder: Path) -> list[Path]:
    """List the shards in a folder and in its subfolders that are named like splits, sorted."""
    tops = (
        [path for path in folder.iterdir() if path.name.lower() in WORDS] if folder.is_dir() else []
    )
    return sorted(file for top in (folder, *tops) for file in top.glob("*.tar"))


def opened(layout: Layout, described: dict[str, Any], every: Every | None) -> ShardSource:
    """Return all pictures of the shards, from one pass over their headers; `every` chooses those
    for validation.

    Raises SourceError if a sample has no class or not one picture.
    """
    files = [("train", file) for file in layout.train] + [("val", file) for file in layout.val]
    samples = [(split, *sample) for split, file in files for sample in _samples(file)]
    numbers = all(label.isdigit() for _, label, _ in samples)
    digits = max((len(label) for _, label, _ in samples), default=0)
    # Names of one length have one order, as text and as numbers.
    named = [
        (split, label.zfill(digits) if numbers else label, entry) for split, label, entry in samples
    ]
    classes = tuple(sorted({label for _, label, _ in named}))
    labels = {name: number for number, name in enumerate(classes)}
    entries = sorted((labels[name], entry.filename, split, entry) for split, name, entry in named)
    listed: dict[str, list[Entry]] = {split: [] for split in SPLITS}
    for label, _, split, entry in entries:
        listed[split].append(entry._replace(label=label))
    if every is not None:
        listed = {split: every.part(listed["train"], split) for split in SPLITS}
    return ShardSource(classes, described, listed)


def _samples(file: Path) -> Iterator[tuple[str, Entry]]:
    """Yield (class, picture) of each sample of a shard; labels are still 0."""
    with _tar.opened(file) as stream:
        for number, (key, members) in enumerate(groupby(_tar.members(stream, str(file)), _key)):
            files = {member.name.partition(".")[2].lower(): member for member in members}
            kinds = [kind for kind in files if f".{kind}" in pictures.SUFFIXES]
            if "cls" not in files or len(kinds) != 1:
                has, allowed = (
                    ", ".join(sorted(files)),
                    ", ".join(suffix[1:] for suffix in pictures.SUFFIXES),
                )
                raise SourceError(
                    f"{file}: sample {key} has {has}; allowed: cls and one of {allowed}"
                )
            written = os.pread(
                stream.fileno(), min(files["cls"].size, LONGEST + 1), files["cls"].offset
            )
            label = written.decode(errors="replace").strip()
            if (
                not label.isprintable()
                or not label
                or len(written) > LONGEST
                or "/" in label
                or label[0] == "."
            ):
                raise SourceError(
                    f"{file}: sample {key}: cls is {label[:40]!r}; allowed: a class's name or"
                    " number"
                )
            picture = files[kinds[0]]
            name = f"{file.stem}-{number:07d}.{kinds[0]}"
            yield label, Entry(name, 0, str(file), picture.offset, picture.size)


def _key(member: _tar.Member) -> str:
    """Return the key that the files of a sample share: the path up to the first dot of the name."""
    return str(PurePosixPath(member.path).with_name(member.name.partition(".")[0] or member.name))
