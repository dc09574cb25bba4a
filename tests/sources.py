"""Sources that tests make: pictures held in memory, and faults on demand."""

import io
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ddlbench.core import registry
from ddlbench.data.prepare import write_form
from ddlbench.data.source import BadImage, Entry, Picture


class Sample(NamedTuple):
    """One picture: `encoded` is the image file's bytes, `label` counts from 0."""

    filename: str
    label: int
    encoded: bytes
    height: int
    width: int


@dataclass
class Memory:
    """A source of given samples. Reading one takes `seconds`; those named in `bad` (class/file
    name) are bad.
    """

    samples: dict[str, list[Sample]]
    classes: tuple[str, ...]
    seconds: float = 0.0
    bad: frozenset[str] = frozenset()
    tree: Path | None = None
    described: dict[str, Any] = field(default_factory=lambda: {"source": "a test"})

    def entries(self, split: str) -> list[Entry]:
        return [
            Entry(s.filename, s.label, split, i, len(s.encoded))
            for i, s in enumerate(self.samples[split])
        ]

    def read(self, entry: Entry) -> Picture:
        time.sleep(self.seconds)
        name = f"{self.classes[entry.label]}/{entry.filename}"
        if name in self.bad:
            raise BadImage(f"{entry.path}/{name}: is bad")
        sample = self.samples[entry.path][entry.offset]
        return Picture(sample.encoded, sample.height, sample.width)


def picture(number: int, height: int = 9, width: int = 12, kind: str = "PNG") -> bytes:
    """A small picture of noise that differs from number to number."""
    from PIL import Image

    buffer = io.BytesIO()
    noise = random.Random(number).randbytes(height * width * 3)
    Image.frombytes("RGB", (width, height), noise).save(buffer, kind)
    return buffer.getvalue()


def some(train: int, val: int, classes: int = 3, **settings: Any) -> Memory:
    """So many small pictures, the classes in turn."""

    def samples(count: int, start: int) -> list[Sample]:
        return [
            Sample(f"{i:05d}.png", i % classes, picture(start + i), 9, 12) for i in range(count)
        ]

    given = {"train": samples(train, 0), "val": samples(val, train)}
    return Memory(given, tuple(f"class{c}" for c in range(classes)), **settings)


def prepare_all(folder: Path, samples: dict[str, list[Sample]], classes: tuple[str, ...]) -> Path:
    """Given samples in every form: `folder/raw`, `folder/tfrecord`, ..."""
    for form in registry.members("forms"):
        write_form(lambda: Memory(samples, classes), "mnist5k", form, folder / form)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, by its path."""
    files = (Path(top, name) for top, _, names in os.walk(folder) for name in names)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
