"""tfrecord: shards of tf.train.Example records in TF-slim's layout, each with DALI's index, written in one pass.

Pictures are shuffled by the seed over the whole split before they are dealt to shards, because DALI shuffles within a
small buffer only. A writer holds one picture at a time.
What a record is: `_example.py`.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from ddlbench.data.manifest import KEPT, NAME, Manifest
from ddlbench.data.part import Checked, Part, Written, note, pictures, undecodable, write_through
from ddlbench.data.source import Entry, Source
from ddlbench.files import aside
from ddlbench.forms import _example
from ddlbench.forms._example import FRAME_BYTES, packed_crc, parse, record, unframed

PARTS = "shards"
FORMAT = 1  # raise it when the same pictures are to be written in another way
IN_PLACE = False
LABEL_OFFSET = _example.LABEL_OFFSET
# ImageNet's 1 281 167 and 50 000 images make TF-slim's 1024 and 128 shards; small sets get as many images per shard,
# but no fewer shards than these (and no shard without an image).
IMAGES_PER_SHARD = {"train": 1251, "val": 391}
BESIDE_BYTES = 250  # of a record beside its picture, and its line in the index
AT_ONCE = 16  # shards that `glance` looks at: a cluster's file system answers slowly, but many at once
LOST = -1  # the length of a record that nothing says
SEND_EVERY = 8 << 20  # bytes: the disk writes them while the next are read, not all at the end
LEAST_SHARDS = {"train": 4, "val": 2}


def parts(split: str, entries: list[Entry], classes: tuple[str, ...], seed: int) -> list[Part]:
    """The shards `<split>-00000-of-01024`, ...: the shuffled entries, dealt like cards."""
    shuffled = list(entries)
    random.Random(seed).shuffle(shuffled)
    count = shard_count(split, len(entries))
    return [Part(split, f"{split}-{i:05d}-of-{count:05d}", shuffled[i::count]) for i in range(count)]


def shard_count(split: str, images: int) -> int:
    """How many a split of so many images has."""
    return min(images, max(LEAST_SHARDS[split], round(images / IMAGES_PER_SHARD[split])))


def needs(images: dict[str, int], classes: int, picture_bytes: float) -> tuple[float, int]:
    """(bytes on disk, files and folders) of a form: a shard and its index each, folder and manifests."""
    files = 2 * sum(shard_count(split, count) for split, count in images.items())
    return sum(images.values()) * (picture_bytes + BESIDE_BYTES), files + 3


def write(part: Part, source: Source, folder: Path, on_error: str) -> Written:
    """Write `folder/<shard>` and `<shard>.idx`, which has one line "offset size" per record.

    Raises BadImage, SourceError, OSError.
    """
    path = folder / part.name
    digest, lines, offset = hashlib.sha256(), [], 0
    labels: Counter[str] = Counter()
    skipped: dict[str, str] = {}
    sent = 0  # up to here the disk has been told to write
    with aside(path, _partial(folder, part)) as hidden:
        with hidden.open("wb") as file:
            for entry, picture in pictures(part, source, on_error, skipped):
                data = record(entry, picture, source.classes)
                file.write(data)
                digest.update(data)
                lines.append(f"{offset} {len(data)}\n")
                labels[source.classes[entry.label]] += 1
                offset += len(data)
                if offset - sent > SEND_EVERY:
                    file.flush()
                    os.posix_fadvise(file.fileno(), sent, offset - sent, os.POSIX_FADV_DONTNEED)
                    sent = offset
            file.flush()
            os.fsync(file.fileno())
        written = Written(dict(sorted(labels.items())), offset, {part.name: digest.hexdigest()}, skipped)
        # The shard gets its name last: one that has its name has its index and its note.
        write_through(index_of(path), "".join(lines).encode())
        note(folder, part, written)
    return written


def is_whole(part: Part, source: Source, folder: Path, written: Written) -> bool:
    """Whether the shard of this note is there."""
    path = folder / part.name
    return path.is_file() and path.stat().st_size == written.bytes


def discard(part: Part, folder: Path) -> None:
    """Remove what an interrupted `write` left."""
    _partial(folder, part).unlink(missing_ok=True)
    index_of(_partial(folder, part)).unlink(missing_ok=True)


def shards(folder: Path, split: str) -> list[Path]:
    """The shards of a split, in order."""
    return sorted(p for p in folder.glob(f"{split}-*-of-*") if p.suffix != ".idx")


def index(folder: Path, manifest: Manifest) -> None:
    """Nothing: shards are few, and each has its index."""


def check_index(folder: Path, manifest: Manifest) -> list[str]:
    """Nothing; `check` reads the shards' indices."""
    return []


def names(folder: Path, split: str) -> set[str]:
    """The parts of a split that lie in the folder, as the manifest names them."""
    return {path.name for path in shards(folder, split)}


def strangers(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Files and folders that are no part of the form, by their path within it."""
    shards = {name for split in manifest.splits.values() for name in split.sha256}
    known = {NAME, *shards, *(f"{name}.idx" for name in shards)}
    for file in sorted(os.scandir(folder), key=lambda file: file.name):
        if (file.name not in known and not file.name.startswith(KEPT)) or not file.is_file(follow_symlinks=False):
            yield file.name


def check(folder: Path, name: str, digest: str, classes: tuple[str, ...], every: int, skipped: set[str]) -> Checked:
    """Read every record of a shard: both CRCs, the index, the digest, the label; decode one in `every` pictures."""
    found = Checked({}, 0, [])
    hashed = hashlib.sha256()
    for number, data in enumerate(_records(folder / name, found.problems, hashed)):
        if data is None:
            continue
        try:
            synset, encoded, size = _understood(data, classes)
        except ValueError as error:
            found.problems.append(f"{name}: record {number}: {error}")
            continue
        found.images_per_class[synset] = found.images_per_class.get(synset, 0) + 1
        if number % every == 0:
            found.decoded += 1
            if fault := undecodable(encoded, *size):
                found.problems.append(f"{name}: record {number}: {fault}")
    if hashed.hexdigest() != digest:
        found.problems.append(f"{name}: SHA-256 is not the manifest's")
    return found


def _understood(data: bytes, classes: tuple[str, ...]) -> tuple[str, bytes, tuple[int, int]]:
    """(class, image file, height and width) of a record's data. Raises ValueError, in words."""
    try:
        example = parse(data)
        label, encoded = example["image/class/label"] - LABEL_OFFSET, example["image/encoded"]
        synset, size = example["image/class/synset"].decode(), (example["image/height"], example["image/width"])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"is no picture's Example ({error!r})") from None
    if not 0 <= label < len(classes) or classes[label] != synset:
        raise ValueError(f"label {label + LABEL_OFFSET} is not class {synset}")
    return synset, encoded, size


class Glance(NamedTuple):
    """What a look at one shard found: records and bytes, the digest of its first record, what is wrong."""

    records: int
    bytes: int
    first: str
    problems: list[str]


def glance(folder: Path, manifest: Manifest, most_bytes: int) -> list[str]:
    """Sizes and indices of all shards, compared with the manifest; of each shard its first record and, as far as
    `most_bytes` go, some others by chance: CRCs and labels. A form that is smaller is read whole."""
    share = most_bytes // max(1, sum(len(split.sha256) for split in manifest.splits.values()))
    problems = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for split, told in manifest.splits.items():
            look = partial(_glance, folder, manifest.classes, share)
            found = dict(zip(told.sha256, pool.map(look, told.sha256), strict=True))
            wrong = [problem for one in found.values() for problem in one.problems]
            firsts: dict[str, str] = {}
            for name, one in found.items():
                if one.first and (other := firsts.setdefault(one.first, name)) != name:
                    wrong.append(f"{name}: begins with the same record as {other}: one was copied over the other")
            if not wrong:
                for what, told_, there in (
                    ("records", told.images, sum(one.records for one in found.values())),
                    ("bytes", told.bytes, sum(one.bytes for one in found.values())),
                ):
                    if told_ != there:
                        wrong.append(f"{split}: its shards have {there} {what}, the manifest says {told_}")
            problems += wrong
    return problems


def _glance(folder: Path, classes: tuple[str, ...], most_bytes: int, name: str) -> Glance:
    path = folder / name
    try:
        index = _index(path)
        descriptor = os.open(path, os.O_RDONLY)
    except (OSError, ValueError) as error:
        where = getattr(error, "filename", None) or index_of(path)
        reason = error.strerror if isinstance(error, OSError) else error
        return Glance(0, 0, "", [f"{Path(where).name}: cannot be read: {reason}"])
    try:
        size = os.fstat(descriptor).st_size
        sizes = [size for _, size in index]
        ends = list(accumulate(sizes, initial=0))
        if [offset for offset, _ in index] != ends[:-1] or min(sizes, default=FRAME_BYTES) < FRAME_BYTES:
            return Glance(len(index), size, "", [f"{name}.idx: its records do not follow each other"])
        if ends[-1] != size:
            return Glance(len(index), size, "", [f"{name}: has {size} bytes, its .idx says {ends[-1]}"])
        problems, first = [], ""
        for number in _some(sizes, most_bytes):
            offset, length = index[number]
            framed = os.pread(descriptor, length, offset)
            if number == 0:
                first = hashlib.sha256(framed).hexdigest()
            try:
                _understood(unframed(framed), classes)
            except ValueError as error:
                problems.append(f"{name}: record {number}: {error}")
                break
    except OSError as error:
        return Glance(0, 0, "", [f"{name}: cannot be read: {error.strerror}"])
    finally:
        os.close(descriptor)
    return Glance(len(index), size, first, problems)


def _some(sizes: list[int], most_bytes: int) -> list[int]:
    """Numbers of records to read, in order: the first, and others by chance as long as they fit."""
    others = list(range(1, len(sizes)))
    random.shuffle(others)  # another choice each time: in the end all are seen
    chosen, left = ([0] if sizes else []), most_bytes - sum(sizes[:1])
    for number in others:
        if left <= 0:
            break
        chosen.append(number)
        left -= sizes[number]
    return sorted(chosen)


def _index(shard: Path) -> list[tuple[int, int]]:
    """(offset, size) of each record [bytes], as the index says. Raises OSError, ValueError."""
    numbers = list(map(int, index_of(shard).read_text(encoding="ascii").split()))
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _records(path: Path, problems: list[str], digest: Any) -> Iterator[bytes | None]:
    """Each record's data, None where it is damaged; what is wrong goes into `problems`, all bytes into `digest`."""
    index: list[tuple[int, int]] = []
    try:
        index = _index(path)
    except (FileNotFoundError, ValueError) as error:
        problems.append(f"{path.name}.idx: cannot be read ({error.__class__.__name__})")
    number = offset = 0
    left = path.stat().st_size
    with path.open("rb") as file:
        while header := file.read(12):
            digest.update(header)
            left -= len(header)
            length = int.from_bytes(header[:8], "little")
            damage = None
            if header[8:] != packed_crc(header[:8]):
                # The length cannot be believed: the index says where the record ends.
                damage = "ends early" if len(header) < 12 else "its length's CRC is wrong"
                length = max(LOST, index[number][1] - FRAME_BYTES) if number < len(index) else LOST
            # No more than is there: a damaged length can be any number.
            body = file.read(min(length + 4, left)) if length != LOST else b""
            digest.update(body)
            left -= len(body)
            if damage is None and len(body) < length + 4:
                damage = f"ends early: {length + 4 - len(body)} bytes are missing"
            data = body[:-4]
            if damage is None and body[-4:] != packed_crc(data):
                damage = "its data's CRC is wrong"
            if number < len(index) and index[number] != (offset, len(header) + len(body)) and damage is None:
                damage = f"lies at {offset} and has {len(header) + len(body)} bytes; the .idx says otherwise"
            if damage:
                problems.append(f"{path.name}: record {number}: {damage}")
            yield None if damage else data
            number, offset = number + 1, offset + len(header) + len(body)
            if length == LOST:
                while rest := file.read(1 << 20):
                    digest.update(rest)
                return
    if number != len(index):
        problems.append(f"{path.name}: ends after record {number - 1}; the .idx has {len(index)} records")


def index_of(shard: Path) -> Path:
    """Where a shard's index lies."""
    return shard.with_name(shard.name + ".idx")


def _partial(folder: Path, part: Part) -> Path:
    return folder / f"{part.name}.partial"
