"""cifar10: 50 000 + 10 000 pictures of 32x32 pixels in 10 classes (Krizhevsky 2009), from
cifar-10-binary.tar.gz.

Fetched, or data.sources.cifar10 names the archive or the folder unpacked from it. Stored as PNG,
which loses nothing.
"""

from ddlbench.data.datasets import _cifar

PUBLISHED = _cifar.Archive(
    classes=10,
    dataset="cifar10",
    archive="cifar-10-binary.tar.gz",
    md5="c32a1d4ab5d03f1284b67883e8d87530",
    folder="cifar-10-batches-bin",
    names="batches.meta.txt",
    files={"train": tuple(f"data_batch_{n}.bin" for n in range(1, 6)), "val": ("test_batch.bin",)},
    label_bytes=1,
)
IMAGES, NUM_CLASSES = PUBLISHED.images, PUBLISHED.classes
PICTURE_BYTES = _cifar.PIXELS  # as PNG no more than the pixels, near enough
NEEDS = None
expected, in_place, open_source = PUBLISHED.expected, PUBLISHED.in_place, PUBLISHED.open_source
