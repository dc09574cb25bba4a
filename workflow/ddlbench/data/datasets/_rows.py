"""Pictures as rows of bytes in a file, without any header of their own: MNIST's and CIFAR's layout,
read in place.

Each becomes an RGB PNG, which loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.data.datasets._files import read_stretch
from ddlbench.data.pictures import encode
from ddlbench.data.source import Entry, Picture, SourceError


@dataclass(frozen=True)
class Stretch:
    """Rows that follow each other in one file.

    The pixels of the first begin at `offset`, those of each further row `step` bytes later.
    `labels` has one byte per row; `number` is that of the first row, for its name.
    """

    path: str
    offset: int
    step: int
    labels: bytes
    number: int = 0


@dataclass(frozen=True)
class Rows:
    """A source of such pictures. `shape` is (channels, height, width) of a row; all sides grow by
    `pad` zero pixels.
    """

    classes: tuple[str, ...]
    described: dict[str, Any]
    shape: tuple[int, int, int]
    stretches: dict[str, tuple[Stretch, ...]]
    pad: int = 0
    tree: Path | None = None

    def check_counts(self, images: dict[str, int]) -> Rows:
        """Check the numbers of rows and the labels, and return the source itself.

        Raises SourceError if the number of rows of a split is not that in `images`, or a label is
        beyond the classes.
        """
        for split, stretches in self.stretches.items():
            there = ", ".join(dict.fromkeys(s.path for s in stretches))
            count = sum(len(s.labels) for s in stretches)
            if count != images[split]:
                raise SourceError(
                    f"{there}: {count} pictures for {split}, expected {images[split]}"
                )
            highest = max(max(s.labels) for s in stretches)
            if highest >= len(self.classes):
                raise SourceError(
                    f"{there}: label {highest} in {split}, but only {len(self.classes)} classes"
                )
        return self

    def entries(self, split: str) -> list[Entry]:
        """List the entries of a split, in the order of the files."""
        size = self.shape[0] * self.shape[1] * self.shape[2]
        return [
            Entry(f"{s.number + row:05d}.png", label, s.path, s.offset + row * s.step, size)
            for s in self.stretches[split]
            for row, label in enumerate(s.labels)
        ]

    def read(self, entry: Entry) -> Picture:
        """Return the row as an RGB PNG. Raises BadImage."""
        import numpy as np
        from PIL import Image

        pixels = np.frombuffer(read_stretch(entry), np.uint8).reshape(self.shape).transpose(1, 2, 0)
        pixels = np.pad(pixels, ((self.pad, self.pad), (self.pad, self.pad), (0, 0)))
        image = Image.fromarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)).copy())
        return Picture(encode(image, "PNG"), image.height, image.width)
