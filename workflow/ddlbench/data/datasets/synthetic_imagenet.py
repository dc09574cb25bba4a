"""synthetic-imagenet: JPEGs made from a seed that weigh what ImageNet's do, as many as one likes.

data.sources.synthetic-imagenet says how many, such as `train=20000,val=1000,classes=100,seed=1`;
what is left out is as in DEFAULT. They are made when they are read, by as many processes as prepare
them. On the mean they are 500 pixels wide, 375 high and 110 kB, from thumbnails to several
megapixels. A class is a pattern of colours, mixed with as much of a picture's own: it can be
learnt.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.data.datasets import Fixed
from ddlbench.data.pictures import encode
from ddlbench.data.source import Entry, Picture, Place, SourceError
from ddlbench.settings.config import one_of

DEFAULT = {"train": 2000, "val": 200, "classes": 10, "seed": 1}
IMAGES = {"train": DEFAULT["train"], "val": DEFAULT["val"]}
NUM_CLASSES = DEFAULT["classes"]
PICTURE_BYTES = 110_000
NEEDS = None
in_place = Fixed(IMAGES, NUM_CLASSES).in_place
EXAMPLE = "such as train=20000,val=1000,classes=100,seed=1"
PATTERN = (6, 8, 3)  # rows, columns, colours
QUALITY = 93
STRENGTH = (8, 124)  # of 256; up to 128 the detail fits into 16 bits


def open_source(place: Place) -> Synthetic:
    """Return a source with the requested number of pictures.

    Raises SourceError if the text cannot be understood.
    """
    asked = parse_request(place.given)
    classes = tuple(f"s{number:08d}" for number in range(asked["classes"]))
    return Synthetic(classes, {"source": "made here", **asked}, asked)


def expected(given: str | None) -> tuple[dict[str, int], int]:
    """Return the requested (images per split, classes). Raises SourceError."""
    asked = parse_request(given)
    return {"train": asked["train"], "val": asked["val"]}, asked["classes"]


def parse_request(given: str | None) -> dict[str, int]:
    """Parse `train`, `val`, `classes` and `seed` from a text such as `train=20000,val=1000`.

    Raises SourceError.
    """
    asked = dict(DEFAULT)
    for part in given.replace(" ", "").split(",") if given is not None else ():
        match = re.fullmatch(r"(\w+)=(\d+)", part)
        if match is None or match[1] not in DEFAULT:
            allowed = one_of(DEFAULT, part.partition("=")[0])
            raise SourceError(
                f"data.sources.synthetic-imagenet: {part!r} in {given!r}; {EXAMPLE}; {allowed}"
            )
        asked[match[1]] = int(match[2])
    if asked["classes"] < 1 or min(asked["train"], asked["val"]) < asked["classes"]:
        raise SourceError(
            f"data.sources.synthetic-imagenet: {given!r}: each class needs a picture in train and"
            " in val"
        )
    return asked


@dataclass(frozen=True)
class Synthetic:
    """Pictures that are made when they are read; an entry's offset is the picture's number."""

    classes: tuple[str, ...]
    described: dict[str, Any]
    asked: dict[str, int]
    tree: Path | None = None

    def entries(self, split: str) -> list[Entry]:
        """List the pictures of a split; the classes take turns."""
        count = self.asked["classes"]
        return [
            Entry(f"{split}_{n:08d}.JPEG", n % count, split, n, 0) for n in range(self.asked[split])
        ]

    def read(self, entry: Entry) -> Picture:
        """Make the picture. Picture and class determine all random numbers, and the arithmetic uses
        integers: the bytes are always the same.
        """
        import numpy as np
        from PIL import Image

        split = 1 + ("train", "val").index(entry.path)
        rng = np.random.Generator(np.random.PCG64([self.asked["seed"], split, entry.offset]))
        of_class = np.random.Generator(np.random.PCG64([self.asked["seed"], 0, entry.label]))
        width, height = _size(rng)
        colours = of_class.integers(0, 256, PATTERN, np.uint16) + rng.integers(
            0, 256, PATTERN, np.uint16
        )
        smooth = Image.fromarray((colours // 2).astype(np.uint8)).resize(
            (width, height), Image.Resampling.BICUBIC
        )
        # What a JPEG weighs is its detail: of some pixels' size and of one pixel's, of another
        # strength each picture.
        few = Image.fromarray(rng.integers(0, 256, (height // 6 + 1, width // 6 + 1), np.uint8))
        coarse = np.asarray(few.resize((width, height), Image.Resampling.BILINEAR), np.int16)
        fine = np.frombuffer(rng.bytes(width * height), np.uint8).reshape(height, width)
        detail = (coarse + fine - 255) * np.int16(rng.integers(*STRENGTH)) // 256
        pixels = np.asarray(smooth, np.int16) + detail[:, :, None]
        image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
        return Picture(encode(image, "JPEG", quality=QUALITY), height, width)


def _size(rng: Any) -> tuple[int, int]:
    """Draw width and height [pixels]: for three of four pictures the longer side has 500, as for
    most of ImageNet.
    """
    kind = rng.random()
    if kind < 0.75:
        return (500, 375) if kind < 0.5 else (500, 333) if kind < 0.65 else (375, 500)
    size, shape = 386 * math.exp(rng.normal(0, 0.5)), math.exp(rng.normal(0.45, 0.3))
    width, height = int(size * math.sqrt(shape)), int(size / math.sqrt(shape))
    return min(max(width, 75), 3000), min(max(height, 75), 3000)
