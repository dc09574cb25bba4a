"""mnist: 60 000 + 10 000 handwritten digits (LeCun, Cortes, Burges), from the four published IDX
files.

Fetched, or in the folder that data.sources.mnist names, packed (.gz) or not. Padded from 28x28 to
32x32 and stored as RGB PNG, which loses nothing. The files' format:
http://yann.lecun.com/exdb/mnist/ (big-endian magic number, sizes, bytes).
"""

import gzip
import struct
import zlib
from pathlib import Path

from ddlbench.data.datasets import Fixed
from ddlbench.data.datasets._files import absolute, checked, fetched, keep, one_line
from ddlbench.data.datasets._rows import Rows, Stretch
from ddlbench.data.source import Place, SourceError

IMAGES = {"train": 60000, "val": 10000}
CLASSES = tuple(str(digit) for digit in range(10))
NUM_CLASSES = len(CLASSES)
PICTURE_BYTES = 481  # as PNG, the mean of the 5000 of mnist5k
NEEDS = None
_FIXED = Fixed(IMAGES, NUM_CLASSES)
expected, in_place = _FIXED.expected, _FIXED.in_place
SETTING = "data.sources.mnist"
# The copy that PyTorch keeps: the original site answers only now and then. Digests: torchvision,
# datasets/mnist.py.
ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist"
MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
PREFIX = {"train": "train", "val": "t10k"}


def open_source(place: Place) -> Rows:
    """Return the digits in the order of the files.

    Raises SourceError if a file is missing, has another digest or other sizes.
    """
    stretches: dict[str, tuple[Stretch, ...]] = {}
    files: dict[str, str] = {}
    for split, prefix in PREFIX.items():
        images = _plain(f"{prefix}-images-idx3-ubyte", place, files)
        labels = _plain(f"{prefix}-labels-idx1-ubyte", place, files)
        count = _sizes(images, 3)
        if count[1:] != (28, 28) or count[0] != _sizes(labels, 1)[0]:
            raise SourceError(
                f"{images}: {count} pictures, rows, columns; {labels}: {_sizes(labels, 1)[0]}"
                " labels"
            )
        stretches[split] = (Stretch(str(images), 16, 28 * 28, labels.read_bytes()[8:]),)
    described = {"source": place.given or ADDRESS, "files": files}
    return Rows(CLASSES, described, (1, 28, 28), stretches, pad=2).check_counts(IMAGES)


def _plain(name: str, place: Place, files: dict[str, str]) -> Path:
    """Return the unpacked file; note in `files` what was taken and its digest."""
    packed = f"{name}.gz"
    if place.given is None:
        source = fetched(f"{ADDRESS}/{packed}", MD5[packed], place.cache, SETTING)
    else:
        folder = absolute(place.given)
        if (folder / name).is_file():
            files[name] = "not checked: no digest is published for the unpacked file"
            return folder / name
        if not (folder / packed).is_file():
            raise SourceError(
                f"{folder}: holds no {packed}; {SETTING} is a folder with {', '.join(MD5)}"
            )
        source = checked(folder / packed, MD5[packed])
    files[packed] = f"md5:{MD5[packed]}"
    target = place.cache / name
    try:
        # Also if the file is there from another time: only the packed one's digest was checked.
        with gzip.open(source) as stream:
            keep(target, stream.read())
    except (EOFError, zlib.error, OSError) as error:
        raise SourceError(f"{source}: cannot be unpacked: {one_line(error)}") from None
    return target


def _sizes(path: Path, dimensions: int) -> tuple[int, ...]:
    """Return the sizes in the header of an IDX file of bytes.

    Raises SourceError if it is no such file, or its length does not agree with its header.
    """
    with path.open("rb") as stream:
        header = stream.read(4 + 4 * dimensions)
    if len(header) < 4 + 4 * dimensions or header[:4] != bytes([0, 0, 8, dimensions]):
        raise SourceError(f"{path}: is not an IDX file of bytes with {dimensions} dimensions")
    sizes = struct.unpack(f">{dimensions}I", header[4:])
    content = 1
    for size in sizes:
        content *= size
    length = path.stat().st_size - len(header)
    if length != content:
        raise SourceError(f"{path}: {length} bytes after the header, which says {content}")
    return sizes
