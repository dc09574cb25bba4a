"""tfrecord: shards of tf.train.Example records in TF-slim's layout, each with DALI's index, written
in one pass.

A record is one picture, a framed, serialised tf.train.Example. What all forms of shards do alike:
`_shards.py`. Framing: https://www.tensorflow.org/tutorials/load_data/tfrecord (length, masked
CRC-32C, data, masked CRC-32C). Features:
https://github.com/tensorflow/models/blob/master/research/slim/datasets/build_imagenet_data.py
"""

import hashlib
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from ddlbench.core.files import opened
from ddlbench.data.form_parts import Checked
from ddlbench.data.forms._shards import ShardForm, index_text
from ddlbench.data.manifest import Manifest
from ddlbench.data.source import Entry, Picture

PARTS = "shards"
FORMAT = 1  # raise it when the same pictures are to be written in another way
IN_PLACE = False
LABEL_OFFSET = 1  # TF-slim keeps 0 for a background class
FRAME_BYTES = 16  # of a record beside its data: length and two CRCs
LOST = -1  # the length of a record that nothing says


def index(folder: Path, manifest: Manifest) -> None:
    """Do nothing: shards are few, and each has its index."""


def check_index(folder: Path, manifest: Manifest) -> list[str]:
    """Return nothing wrong: `check` reads the shards' indices."""
    return []


def samples(folder: Path, split: str) -> None:
    """Return None: DALI's own reader finds the labels."""


def check(
    folder: Path, name: str, digest: str, classes: tuple[str, ...], every: int, skipped: set[str]
) -> Checked:
    """Read every record of a shard: both CRCs, the index, the digest, the label; decode one in
    `every` pictures.
    """
    checked = Checked(size_bytes=(folder / name).stat().st_size)
    hashed = hashlib.sha256()
    for number, data in enumerate(_records(folder / name, checked.problems, hashed)):
        if data is None:
            continue
        try:
            synset, encoded, size = _parse_record(data, classes)
        except ValueError as error:
            checked.problems.append(f"{name}: record {number}: {error}")
            continue
        checked.count(f"{name}: record {number}", synset, number % every == 0, encoded, *size)
    if hashed.hexdigest() != digest:
        checked.problems.append(f"{name}: SHA-256 is not the manifest's")
    return checked


def _parse_record(data: bytes, classes: tuple[str, ...]) -> tuple[str, bytes, tuple[int, int]]:
    """Parse (class, image file, height and width) from a record's data.

    Raises ValueError with a readable message.
    """
    try:
        example = parse(data)
        label, encoded = example["image/class/label"] - LABEL_OFFSET, example["image/encoded"]
        synset, size = (
            example["image/class/synset"].decode(),
            (example["image/height"], example["image/width"]),
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"is not the tf.train.Example of an image ({error!r})") from None
    if not 0 <= label < len(classes) or classes[label] != synset:
        raise ValueError(f"label {label + LABEL_OFFSET} is not class {synset}")
    return synset, encoded, size


def _index(shard: Path) -> list[tuple[int, int]]:
    """Read (offset, size) of each record [bytes] from the index. Raises OSError, ValueError."""
    numbers = list(map(int, index_text(shard).split()))
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _records(path: Path, problems: list[str], digest: Any) -> Iterator[bytes | None]:
    """Yield each record's data, None where it is damaged.

    Put what is wrong into `problems`, and all bytes into `digest`.
    """
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
                # The length cannot be trusted: the record's end is taken from the index.
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
            if (
                number < len(index)
                and index[number] != (offset, len(header) + len(body))
                and damage is None
            ):
                damage = (
                    f"lies at {offset} and has {len(header) + len(body)} bytes; the .idx says"
                    " otherwise"
                )
            if damage:
                problems.append(f"{path.name}: record {number}: {damage}")
            yield None if damage else data
            number, offset = number + 1, offset + len(header) + len(body)
            if length == LOST:
                while rest := file.read(1 << 20):
                    digest.update(rest)
                return
    if number != len(index):
        problems.append(
            f"{path.name}: ends after record {number - 1}; the .idx has {len(index)} records"
        )


def _record(
    entry: Entry, picture: Picture, classes: tuple[str, ...], number: int, offset: int
) -> tuple[bytes, str]:
    """Return a picture's record as it lies on disk, and its line in the index."""
    features = (
        _number("image/class/label", entry.label + LABEL_OFFSET),
        _text("image/class/synset", classes[entry.label]),
        _text("image/colorspace", "RGB"),
        *_entry("image/encoded", picture.encoded),
        *_entry("image/filename", entry.filename.encode()),
        _text("image/format", "PNG" if picture.encoded.startswith(b"\x89PNG") else "JPEG"),
        _number("image/height", picture.height),
        _number("image/width", picture.width),
    )
    size = sum(map(len, features))
    example = (_head(1, size), *features)
    length = struct.pack("<Q", len(example[0]) + size)
    # Joined once: copying a picture takes as long as its CRC.
    data = b"".join((length, packed_crc(length), *example, packed_crc(*example)))
    return data, f"{offset} {len(data)}\n"


def packed_crc(*pieces: bytes) -> bytes:
    """Return the masked CRC as it lies on disk."""
    return struct.pack("<I", masked_crc(*pieces))


def masked_crc(*pieces: bytes) -> int:
    """Compute the CRC-32C of the pieces, one after the other, rotated and offset as TFRecord wants
    it.
    """
    import crc32c

    crc = 0
    for piece in pieces:
        crc = crc32c.crc32c(piece, crc)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# Most values come again and again, and coding them takes longer than their checksum.
@lru_cache(maxsize=1 << 14)
def _text(key: str, value: str) -> bytes:
    return b"".join(_entry(key, value.encode()))


@lru_cache(maxsize=1 << 14)
def _number(key: str, value: int) -> bytes:
    return b"".join(_entry(key, _varint(value), kind=3))


def _entry(key: str, value: bytes, kind: int = 1) -> tuple[bytes, bytes]:
    """Encode an entry of the map of features, a list (`kind` 1: bytes, 3: int64) of one value.

    Return the bytes before the value, and the value.
    """
    inner = _head(1, len(value))
    inner = _head(kind, len(inner) + len(value)) + inner
    inner = _head(1, len(key)) + key.encode() + _head(2, len(inner) + len(value)) + inner
    return _head(1, len(inner) + len(value)) + inner, value


def _head(number: int, length: int) -> bytes:
    """Return the tag and length that precede a length-delimited protobuf field."""
    return _varint(number << 3 | 2) + _varint(length)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def parse(data: bytes) -> dict[str, Any]:
    """Parse the features of a serialised tf.train.Example that have one value: bytes or int.

    Raises ValueError.
    """
    features: dict[str, Any] = {}
    for entry in _values(_one(data), 1):
        kinds = _one(entry, 2)
        number = (kinds[0] >> 3) if kinds else 0
        if number == 1:
            value: Any = _one(_one(kinds, 1), 1)
        elif number == 3:
            numbers = _one(kinds, 3)
            value = _read_varint(_one(numbers) if numbers[0] == 1 << 3 | 2 else numbers[1:], 0)[0]
        else:
            continue
        features[_one(entry, 1).decode()] = value
    return features


def _one(data: bytes, number: int = 1) -> bytes:
    values = _values(data, number)
    if len(values) != 1:
        raise ValueError(f"{len(values)} values in field {number}")
    return values[0]


def _values(data: bytes, number: int) -> list[bytes]:
    """Return the length-delimited fields of this number. Raises ValueError."""
    values, at = [], 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        if tag & 7 != 2:
            raise ValueError(f"wire type {tag & 7}")
        length, at = _read_varint(data, at)
        if at + length > len(data):
            raise ValueError("a field is cut off")
        if tag >> 3 == number:
            values.append(data[at : at + length])
        at += length
    return values


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    with suppress(IndexError):
        while True:
            byte = data[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at
    raise ValueError("a number is cut off")


_SHARDS = ShardForm(
    suffix="",
    beside_bytes=250,
    lists=0,
    end=b"",
    record=_record,
    head=lambda count: "",
    numbered=False,
)
parts, needs, write = _SHARDS.parts, _SHARDS.needs, _SHARDS.write
shards, part_names, glance = _SHARDS.shards, _SHARDS.part_names, _SHARDS.glance
