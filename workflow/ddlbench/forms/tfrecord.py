"""tfrecord: shards of tf.train.Example records in TF-slim's layout, each with DALI's index, written in one pass.

Samples are shuffled by the seed before they are dealt to shards, because DALI shuffles within a small buffer only.
Record framing: https://www.tensorflow.org/tutorials/load_data/tfrecord (length, masked CRC-32C, data, masked CRC-32C).
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterator
from pathlib import Path

from ddlbench.manifest import Sample, Split, count_classes

LABEL_OFFSET = 1  # TF-slim keeps 0 for a background class
SHARDS = {"train": 4, "val": 2}


def write(samples: Iterator[Sample], split: str, folder: Path, classes: tuple[str, ...], seed: int) -> Split:
    """Write `folder/<split>-00000-of-00004` and `....idx` ("offset size" a line)."""
    everything = list(samples)
    random.Random(seed).shuffle(everything)
    count = SHARDS[split]
    digests, size = {}, 0
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(count):
        path = folder / f"{split}-{shard:05d}-of-{count:05d}"
        digest, offset = hashlib.sha256(), 0
        with path.open("wb") as data, path.with_name(path.name + ".idx").open("w", encoding="ascii") as index:
            for sample in everything[shard::count]:
                record = frame(example(sample, classes))
                data.write(record)
                digest.update(record)
                index.write(f"{offset} {len(record)}\n")
                offset += len(record)
        digests[path.name] = digest.hexdigest()
        size += offset
    return Split(len(everything), count_classes((s.label for s in everything), classes), size, digests)


def shards(folder: Path, split: str) -> list[Path]:
    """The shards of a split, in order."""
    return sorted(p for p in folder.glob(f"{split}-*-of-*") if p.suffix != ".idx")


def frame(data: bytes) -> bytes:
    """A record as it lies on disk."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and offset as TFRecord wants it."""
    import crc32c

    crc = crc32c.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def example(sample: Sample, classes: tuple[str, ...]) -> bytes:
    """A serialised tf.train.Example with TF-slim's image keys."""
    format_ = b"PNG" if sample.encoded.startswith(b"\x89PNG") else b"JPEG"
    features = {
        "image/class/label": _int64(sample.label + LABEL_OFFSET),
        "image/class/synset": _bytes(classes[sample.label].encode()),
        "image/colorspace": _bytes(b"RGB"),
        "image/encoded": _bytes(sample.encoded),
        "image/filename": _bytes(sample.filename.encode()),
        "image/format": _bytes(format_),
        "image/height": _int64(sample.height),
        "image/width": _int64(sample.width),
    }
    entries = b"".join(_field(1, _field(1, key.encode()) + _field(2, value)) for key, value in features.items())
    return _field(1, entries)


def _bytes(value: bytes) -> bytes:
    return _field(1, _field(1, value))


def _int64(value: int) -> bytes:
    return _field(3, _field(1, _varint(value)))


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
