"""What forms of shards share: shards of records, each with an index beside it, written in one pass.

Pictures are shuffled by the seed over the whole split before they are dealt to shards, because DALI
shuffles within a small buffer only. A writer holds one picture at a time. What a record is:
`tfrecord.py`, `webdataset.py`.
"""

from __future__ import annotations

import hashlib
import os
import random
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ddlbench.core.files import force, read_bytes
from ddlbench.data.form_parts import Part, Written, file_fault, pictures
from ddlbench.data.manifest import Manifest
from ddlbench.data.source import Entry, Picture, Source

# ImageNet's 1 281 167 and 50 000 images make TF-slim's 1024 and 128 shards; small sets get as many
# images per shard, but no fewer shards than these (and no shard without an image).
IMAGES_PER_SHARD = {"train": 1251, "val": 391}
LEAST_SHARDS = {"train": 4, "val": 2}
SEND_EVERY = 8 << 20  # bytes: the disk writes them while the next are read, not all at the end


@dataclass(frozen=True)
class ShardForm:
    """The functions of `Form` that do not depend on what a record is; the fields hold what does."""

    suffix: str
    """Of a shard's file name; its index has `.idx` behind it."""
    beside_bytes: int
    """Of a record beside its picture, and its line in the index."""
    lists: int
    """Files that `index` leaves beside the manifest."""
    end: bytes
    """What follows a shard's last record."""
    record: Callable[[Entry, Picture, tuple[str, ...], int, int], tuple[bytes, str]]
    """A picture as it lies on disk, and its line in the index: of entry, picture, classes, the entry's number in the
    split, and the record's offset in the shard [bytes]."""
    head: Callable[[int], str]
    """The first line of the index of so many records, or nothing."""
    numbered: bool
    """Whether records want numbers: where a picture stands in the raw form, by class and name."""

    def parts(
        self, split: str, entries: list[Entry], classes: tuple[str, ...], seed: int
    ) -> list[Part]:
        """Return the shards `<split>-00000-of-01024`, ...: the shuffled entries, dealt like
        cards.
        """
        order = array("q", range(len(entries)))
        random.Random(seed).shuffle(order)
        count = shard_count(split, len(entries))
        parts = []
        numbers = _numbers(entries) if self.numbered else order
        for i in range(count):
            mine = order[i::count]
            name = f"{split}-{i:05d}-of-{count:05d}{self.suffix}"
            parts.append(
                Part(
                    split, name, [entries[n] for n in mine], array("q", (numbers[n] for n in mine))
                )
            )
        return parts

    def needs(
        self, images: dict[str, int], classes: int, picture_bytes: float
    ) -> tuple[float, int]:
        """Estimate (bytes on disk, files and folders) of a form: a shard and its index each,
        folder, manifests and lists.
        """
        files = 2 * sum(shard_count(split, count) for split, count in images.items())
        return sum(images.values()) * (picture_bytes + self.beside_bytes), files + self.lists + 3

    def write(self, part: Part, source: Source, folder: Path, on_error: str) -> Written:
        """Write `folder/<shard>` and `<shard>.idx`. Raises BadImage, SourceError, OSError."""
        path = folder / part.name
        numbers = dict(zip(part.entries, part.numbers, strict=True))
        digest, lines, offset = hashlib.sha256(), [], 0
        labels: Counter[str] = Counter()
        skipped: dict[str, str] = {}
        sent = 0  # up to here the disk has been told to write
        with path.open("xb") as file:
            for entry, picture in pictures(part, source, on_error, skipped):
                data, line = self.record(entry, picture, source.classes, numbers[entry], offset)
                file.write(data)
                digest.update(data)
                lines.append(line)
                labels[source.classes[entry.label]] += 1
                offset += len(data)
                if offset - sent > SEND_EVERY:
                    file.flush()
                    os.posix_fadvise(file.fileno(), sent, offset - sent, os.POSIX_FADV_DONTNEED)
                    sent = offset
            file.write(self.end)
            digest.update(self.end)
            file.flush()
            force(file.fileno())
        with index_of(path).open("xb") as file:
            file.write((self.head(len(lines)) + "".join(lines)).encode())
            file.flush()
            force(file.fileno())
        size = offset + len(self.end)
        return Written(dict(sorted(labels.items())), size, {part.name: digest.hexdigest()}, skipped)

    def shards(self, folder: Path, split: str) -> list[Path]:
        """List the shards of a split, in order."""
        return sorted(p for p in folder.glob(f"{split}-*-of-*") if p.suffix != ".idx")

    def part_names(self, folder: Path, split: str) -> set[str]:
        """Return the parts of a split that lie in the folder, as the manifest names them."""
        return {path.name for path in self.shards(folder, split)}

    def glance(self, folder: Path, manifest: Manifest, finished_ns: int) -> list[str]:
        """Check that all shards and indices are there, that none was changed after the form was
        finished, and that their sizes are those of the manifest. Return what is wrong, one line
        each.
        """
        problems = []
        for split, listed in manifest.splits.items():
            files = [folder / file for name in listed.sha256 for file in (name, f"{name}.idx")]
            wrong = [
                f"{file.name}: {what}" for file in files if (what := file_fault(file, finished_ns))
            ]
            size = 0 if wrong else sum((folder / name).stat().st_size for name in listed.sha256)
            if not wrong and size != listed.bytes:
                wrong.append(
                    f"{split}: its shards have {size} bytes, the manifest says {listed.bytes}"
                )
            problems += wrong
        return problems


def shard_count(split: str, images: int) -> int:
    """Return the number of shards of a split of so many images."""
    return min(images, max(LEAST_SHARDS[split], round(images / IMAGES_PER_SHARD[split])))


def index_of(shard: Path) -> Path:
    """Return the path of a shard's index."""
    return shard.with_name(shard.name + ".idx")


def index_text(shard: Path) -> str:
    """Read the text of a shard's index. Raises OSError, ValueError."""
    return read_bytes(index_of(shard)).decode("ascii")


def _numbers(entries: list[Entry]) -> array[int]:
    """Return each entry's position by class and name."""
    order = sorted(range(len(entries)), key=lambda n: (entries[n].label, entries[n].filename))
    numbers = array("q", bytes(8 * len(entries)))
    for number, n in enumerate(order):
        numbers[n] = number
    return numbers
