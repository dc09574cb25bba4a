"""cifar100: 50 000 + 10 000 pictures of 32x32 pixels in 100 classes (the fine labels; Krizhevsky 2009), from
cifar-100-binary.tar.gz.

Fetched, or data.sources.cifar100 names the archive or the folder unpacked from it. Stored as PNG, which loses nothing.
"""

from ddlbench.data.datasets import Fixed, _cifar
from ddlbench.data.datasets._rows import Rows
from ddlbench.data.source import Place

IMAGES = {"train": 50000, "val": 10000}
NUM_CLASSES = 100
PICTURE_BYTES = _cifar.PIXELS  # as PNG no more than the pixels, near enough
NEEDS = None
_FIXED = Fixed(IMAGES, NUM_CLASSES)
expected, in_place = _FIXED.expected, _FIXED.in_place
PUBLISHED = _cifar.Published(
    dataset="cifar100",
    archive="cifar-100-binary.tar.gz",
    md5="03b5dce01913d631647c71ecec9e9cb8",
    folder="cifar-100-binary",
    names="fine_label_names.txt",
    files={"train": ("train.bin",), "val": ("test.bin",)},
    label_bytes=2,
)


def open_source(place: Place) -> Rows:
    """The pictures in the files' order. Raises SourceError."""
    return _cifar.open_source(PUBLISHED, place, IMAGES, NUM_CLASSES)
