"""tfrecord: shards of tf.train.Example records in TF-slim's layout, each with DALI's index, written in one pass.

What a record is: `_example.py`. What all forms of shards do alike: `_shards.py`.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddlbench.core.files import opened
from ddlbench.data.forms import _example
from ddlbench.data.forms._example import FRAME_BYTES, packed_crc, parse, record, unframed
from ddlbench.data.forms._shards import Shards, index_text
from ddlbench.data.manifest import Manifest
from ddlbench.data.part import Checked
from ddlbench.data.source import Entry, Picture

PARTS = "shards"
FORMAT = 1  # raise it when the same pictures are to be written in another way
IN_PLACE = False
LABEL_OFFSET = _example.LABEL_OFFSET
LOST = -1  # the length of a record that nothing says


def index(folder: Path, manifest: Manifest) -> None:
    """Nothing: shards are few, and each has its index."""


def check_index(folder: Path, manifest: Manifest) -> list[str]:
    """Nothing; `check` reads the shards' indices."""
    return []


def samples(folder: Path, split: str) -> None:
    """None: DALI's own reader finds the labels."""


def check(folder: Path, name: str, digest: str, classes: tuple[str, ...], every: int, skipped: set[str]) -> Checked:
    """Read every record of a shard: both CRCs, the index, the digest, the label; decode one in `every` pictures."""
    checked = Checked(size_bytes=(folder / name).stat().st_size)
    hashed = hashlib.sha256()
    for number, data in enumerate(_records(folder / name, checked.problems, hashed)):
        if data is None:
            continue
        try:
            synset, encoded, size = _understood(data, classes)
        except ValueError as error:
            checked.problems.append(f"{name}: record {number}: {error}")
            continue
        checked.count(f"{name}: record {number}", synset, number % every == 0, encoded, *size)
    if hashed.hexdigest() != digest:
        checked.problems.append(f"{name}: SHA-256 is not the manifest's")
    return checked


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


def _index(shard: Path) -> list[tuple[int, int]]:
    """(offset, size) of each record [bytes], as the index says. Raises OSError, ValueError."""
    numbers = list(map(int, index_text(shard).split()))
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _records(path: Path, problems: list[str], digest: Any) -> Iterator[bytes | None]:
    """Each record's data, None where it is damaged; what is wrong goes into `problems`, all bytes into `digest`."""
    index: list[tuple[int, int]] = []
    try:
        index = _index(path)
    except (FileNotFoundError, ValueError) as error:
        problems.append(f"{path.name}.idx: cannot be read ({error.__class__.__name__})")
    number = offset = 0
    with opened(path) as file:
        remaining = os.fstat(file.fileno()).st_size
        while header := file.read(12):
            digest.update(header)
            remaining -= len(header)
            length = int.from_bytes(header[:8], "little")
            damage = None
            if header[8:] != packed_crc(header[:8]):
                # The length cannot be believed: the index says where the record ends.
                damage = "ends early" if len(header) < 12 else "its length's CRC is wrong"
                length = max(LOST, index[number][1] - FRAME_BYTES) if number < len(index) else LOST
            # No more than is there: a damaged length can be any number.
            body = file.read(min(length + 4, remaining)) if length != LOST else b""
            digest.update(body)
            remaining -= len(body)
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


def _record(entry: Entry, picture: Picture, classes: tuple[str, ...], number: int, offset: int) -> tuple[bytes, str]:
    data = record(entry, picture, classes)
    return data, f"{offset} {len(data)}\n"


_SHARDS = Shards(
    suffix="",
    beside_bytes=250,
    lists=0,
    least_bytes=FRAME_BYTES,
    end=b"",
    record=_record,
    head=lambda count: "",
    index=_index,
    look=lambda framed, classes, place: _understood(unframed(framed), classes),
    numbered=False,
)
parts, needs, write = _SHARDS.parts, _SHARDS.needs, _SHARDS.write
is_whole, discard = _SHARDS.is_whole, _SHARDS.discard
shards, names, strangers, glance = _SHARDS.shards, _SHARDS.names, _SHARDS.strangers, _SHARDS.glance
