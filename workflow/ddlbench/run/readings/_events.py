"""TensorBoard's event files, read without its package: scalars by name, as summaries or, of
TensorFlow 2, as tensors.

A file holds records: length (8 bytes), its checksum (4), data, checksum (4). The data are a
protocol buffer `Event`: wall_time = 1 (double), step = 2, summary = 5; values = 1 of a summary hold
tag = 1, simple_value = 2 (float), tensor = 8.
https://github.com/tensorflow/tensorflow/blob/v2.16.1/tensorflow/core/util/event.proto
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FLOATS = {1: "<f", 2: "<d"}  # DT_FLOAT, DT_DOUBLE


class Scalar(NamedTuple):
    """A point of a curve."""

    tag: str
    wall_time: float
    step: int
    value: float


def scalars(path: Path) -> Iterator[Scalar]:
    """Yield the scalars of a file; a record that was cut off ends it."""
    data, at = path.read_bytes(), 0
    while at + 12 <= len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        event = data[at + 12 : at + 12 + size]
        at += 16 + size
        if len(event) < size:
            return
        try:
            yield from _scalars(event)
        except (ValueError, IndexError, struct.error, UnicodeDecodeError):
            return


def _scalars(event: bytes) -> Iterator[Scalar]:
    """Yield the scalars of an event, which may hold several summaries."""
    wall_time, step, summaries = 0.0, 0, []
    for number, value in _fields(event):
        if number == 1 and isinstance(value, bytes):
            (wall_time,) = struct.unpack("<d", value)
        elif number == 2 and isinstance(value, int):
            step = value - (1 << 64) if value >> 63 else value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in _fields(summary):
            if number == 1 and isinstance(value, bytes):
                tag, scalar = _tag_and_scalar(value)
                if tag is not None and scalar is not None:
                    yield Scalar(tag, wall_time, step, scalar)


def _tag_and_scalar(value: bytes) -> tuple[str | None, float | None]:
    tag, scalar = None, None
    for number, field in _fields(value):
        if not isinstance(field, bytes):
            continue
        if number == 1:
            tag = field.decode()
        elif number == 2:
            (scalar,) = struct.unpack("<f", field)
        elif number == 8:
            scalar = _number_in_tensor(field)
    return tag, scalar


def _number_in_tensor(tensor: bytes) -> float | None:
    """Return the number in a tensor that holds one number; None for other tensors."""
    kind, content = 0, b""
    for number, field in _fields(tensor):
        if number == 1 and isinstance(field, int):
            kind = field
        elif number in (4, 5, 6) and isinstance(
            field, bytes
        ):  # its bytes, or a list of floats or doubles
            content += field
    if kind not in FLOATS or len(content) != struct.calcsize(FLOATS[kind]):
        return None
    return float(struct.unpack(FLOATS[kind], content)[0])


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protocol buffer: a number for a varint, bytes for all else."""
    at = 0
    while at < len(data):
        head, at = _varint(data, at)
        number, wire = head >> 3, head & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(wire)
        if wire == 2:
            size, at = _varint(data, at)
        if size is None or at + size > len(data):
            raise ValueError("no event")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if not byte & 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("no number")
