"""imagenet: the 1000 classes of ILSVRC 2012, from a tree of class folders that the site already has.

The environment variable DDLBENCH_IMAGENET names the folder; in it lie `train/<synset>/*.JPEG` and
`val/<synset>/*.JPEG`. Counts: Russakovsky et al. 2015, doi:10.1007/s11263-015-0816-y.

Pictures are read one at a time. Not there yet: the published archives as a source, and the tfrecord form at
full size, which `forms/tfrecord.py` would hold in memory as a whole.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

from ddlbench.config import ConfigError, complain, one_of
from ddlbench.manifest import Sample

IMAGES = {"train": 1281167, "val": 50000}
NUM_CLASSES = 1000
FOLDER = "DDLBENCH_IMAGENET"
LAYOUT = "allowed: a folder with train/<synset>/*.JPEG and val/<synset>/*.JPEG"


def classes() -> tuple[str, ...]:
    """The synsets: names of the folders in `train`, sorted. Raises ConfigError if there are none."""
    return tuple(_folders("train"))


def samples(split: str) -> Iterator[Sample]:
    """The pictures of a split by synset, then by file name.

    Raises ConfigError if the folder is unset or missing, if a class folder is empty or none of train's, or a
    file is no picture.
    """
    label_of = {name: label for label, name in enumerate(classes())}
    folders = _folders(split)
    for name in folders:  # before the first of many pictures is read
        if name not in label_of:
            raise complain(_root() / split, "", name, f"it is no class of train; {one_of(label_of, name)}")
    for name in folders:
        paths = sorted((_root() / split / name).glob("*.JPEG"))
        if not paths:
            raise ConfigError(f"{_root() / split / name}: holds no *.JPEG; {LAYOUT}")
        for path in paths:
            encoded = path.read_bytes()
            width, height = _size(path, encoded)
            yield Sample(path.name, label_of[name], encoded, height, width)


def _root() -> Path:
    folder = os.environ.get(FOLDER)
    if not folder:
        raise ConfigError(f"environment variable {FOLDER}: is not set; {LAYOUT}")
    return Path(folder)


def _folders(split: str) -> list[str]:
    """The class folders of a split, sorted."""
    folder = _root() / split
    entries = folder.iterdir() if folder.is_dir() else ()
    names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        variable = f"environment variable {FOLDER}"
        raise complain(variable, "", str(_root()), f"it has no {split}/<synset>; {LAYOUT}")
    return names


def _size(path: Path, encoded: bytes) -> tuple[int, int]:
    """Width and height [pixels] from the file's header."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(encoded)) as image:
            return image.size
    except UnidentifiedImageError:
        raise ConfigError(f"{path}: is no picture") from None
