"""A record of a TFRecord file: one picture as a framed, serialised tf.train.Example with TF-slim's image keys.

`tfrecord.py` writes and reads whole shards. Writing is as fast as the CRC allows: a picture is copied once.
Framing: https://www.tensorflow.org/tutorials/load_data/tfrecord (length, masked CRC-32C, data, masked CRC-32C).
Features: https://github.com/tensorflow/models/blob/master/research/slim/datasets/build_imagenet_data.py
"""

import struct
from contextlib import suppress
from functools import lru_cache
from typing import Any

from ddlbench.data.source import Entry, Picture

LABEL_OFFSET = 1  # TF-slim keeps 0 for a background class
FRAME_BYTES = 16  # of a record beside its data: length and two CRCs


def record(entry: Entry, picture: Picture, classes: tuple[str, ...]) -> bytes:
    """A picture as it lies on disk: a framed, serialised tf.train.Example with TF-slim's image keys."""
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
    return b"".join((length, packed_crc(length), *example, packed_crc(*example)))


def unframed(framed: bytes) -> bytes:
    """A record's data. Raises ValueError, in words, if its length or a CRC is wrong."""
    if framed[8:12] != packed_crc(framed[:8]):
        raise ValueError("its length's CRC is wrong")
    if int.from_bytes(framed[:8], "little") != len(framed) - FRAME_BYTES:
        raise ValueError(f"has not the {len(framed)} bytes that the .idx says")
    if framed[-4:] != packed_crc(framed[12:-4]):
        raise ValueError("its data's CRC is wrong")
    return framed[12:-4]


def packed_crc(*pieces: bytes) -> bytes:
    """The masked CRC as it lies on disk."""
    return struct.pack("<I", masked_crc(*pieces))


def masked_crc(*pieces: bytes) -> int:
    """CRC-32C of the pieces, one after the other, rotated and offset as TFRecord wants it."""
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
    """An entry of the map of features, a list (`kind` 1: bytes, 3: int64) of one value: what precedes it, and it."""
    inner = _head(1, len(value))
    inner = _head(kind, len(inner) + len(value)) + inner
    inner = _head(1, len(key)) + key.encode() + _head(2, len(inner) + len(value)) + inner
    return _head(1, len(inner) + len(value)) + inner, value


def _head(number: int, length: int) -> bytes:
    """What stands before a length-delimited protobuf field."""
    return _varint(number << 3 | 2) + _varint(length)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def parse(data: bytes) -> dict[str, Any]:
    """The features of a serialised tf.train.Example that have one value: bytes or int. Raises ValueError."""
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
    """The length-delimited fields of this number."""
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
