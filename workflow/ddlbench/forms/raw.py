"""raw: class folders of image files, `train/<class>/<file>` and `val/<class>/<file>`; what the native loader reads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from ddlbench.manifest import Sample, Split, count_classes, sha256

LABEL_OFFSET = 0


def write(samples: Iterator[Sample], split: str, folder: Path, classes: tuple[str, ...], seed: int) -> Split:
    """Write `folder/<split>/<class>/<file>`; the tree's digest covers every path and every file's digest."""
    digests, labels, size = [], [], 0
    for name in classes:
        (folder / split / name).mkdir(parents=True)
    for sample in samples:
        path = Path(split, classes[sample.label], sample.filename)
        (folder / path).write_bytes(sample.encoded)
        digests.append(f"{sha256(sample.encoded)}  {path.as_posix()}\n")
        labels.append(sample.label)
        size += len(sample.encoded)
    tree = hashlib.sha256("".join(sorted(digests)).encode()).hexdigest()
    return Split(len(labels), count_classes(labels, classes), size, {f"{split}/": tree})
