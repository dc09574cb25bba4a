"""What lies in a prepared form: `manifest.json` beside the data, written last, so that what has one is whole.

`prepare.py` makes it; loaders and runs read counts and class names from it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

NAME = "manifest.json"
SPLITS = ("train", "val")


@dataclass(frozen=True)
class Sample:
    """One picture as a data set gives it: `encoded` is the image file's bytes, `label` counts from 0."""

    filename: str
    label: int
    encoded: bytes
    height: int
    width: int


class Dataset(Protocol):
    """What a file in `datasets/` offers. IMAGES (a split) and NUM_CLASSES are known without the data."""

    IMAGES: dict[str, int]
    NUM_CLASSES: int

    def classes(self) -> tuple[str, ...]:
        """The names of the classes, sorted; a label is a name's position. May have to look at the data."""

    def samples(self, split: str) -> Iterator[Sample]:
        """All samples of `train` or `val`, in an order that never changes."""


@dataclass(frozen=True)
class Split:
    """One split of a form: images a class, bytes and SHA-256 a file (a shard, or one digest for a tree)."""

    images: int
    images_per_class: dict[str, int]
    bytes: int
    sha256: dict[str, str]


@dataclass(frozen=True)
class Manifest:
    """The contents of one form of one data set."""

    dataset: str
    form: str
    classes: tuple[str, ...]
    label_offset: int  # what the form adds to a label that counts from 0
    seed: int
    versions: dict[str, str]
    splits: dict[str, Split]

    def write(self, folder: Path) -> None:
        """Write aside, then rename: a manifest is never half there."""
        aside = folder / f".{NAME}.{os.getpid()}"
        aside.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        aside.replace(folder / NAME)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of a prepared form. Raises FileNotFoundError if it was not prepared."""
        data: dict[str, Any] = json.loads((folder / NAME).read_text(encoding="utf-8"))
        data["classes"] = tuple(data["classes"])
        data["splits"] = {name: Split(**split) for name, split in data["splits"].items()}
        return cls(**data)


def count_classes(labels: Iterable[int], classes: tuple[str, ...]) -> dict[str, int]:
    """Images a class, by name, zeros included."""
    counts = dict.fromkeys(classes, 0)
    for label in labels:
        counts[classes[label]] += 1
    return counts


def sha256(data: bytes) -> str:
    """Hex digest."""
    return hashlib.sha256(data).hexdigest()
