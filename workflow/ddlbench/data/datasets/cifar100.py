"""cifar100: 50 000 + 10 000 pictures of 32x32 pixels in 100 classes (fine labels; Krizhevsky 2009).

Fetched, or data.sources.cifar100 names the archive or the folder unpacked from it. Stored as PNG,
which loses nothing.
"""

from ddlbench.data.datasets import _cifar

PUBLISHED = _cifar.Archive(
    classes=100,
    dataset="cifar100",
    archive="cifar-100-binary.tar.gz",
    md5="03b5dce01913d631647c71ecec9e9cb8",
    folder="cifar-100-binary",
    names="fine_label_names.txt",
    files={"train": ("train.bin",), "val": ("test.bin",)},
    label_bytes=2,
)
IMAGES, NUM_CLASSES = PUBLISHED.images, PUBLISHED.classes
PICTURE_BYTES = _cifar.PIXELS  # as PNG no more than the pixels, near enough
NEEDS = None
expected, in_place, open_source = PUBLISHED.expected, PUBLISHED.in_place, PUBLISHED.open_source
