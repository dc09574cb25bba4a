"""What loaders have in common: who gets which sample, where it lies, and the normalisation of pixels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ddlbench.data.manifest import Manifest
from ddlbench.forms import raw

if TYPE_CHECKING:
    import numpy as np

Indices: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
Order: TypeAlias = "Indices | range"

# ImageNet's channel means and deviations on the 0..1 scale, as every published ResNet recipe uses them.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def share(order: Order, global_batch: int, rank: int, world: int, first_step: int = 0) -> Iterator[Order]:
    """One rank's batches of an epoch, from `first_step` on: each global batch is a run of `order`, cut into
    equal parts.

    The last, smaller one is cut as evenly as it goes, so that a rank's part of it can be empty. Parts are views.
    """
    for start in range(first_step * global_batch, len(order), global_batch):
        whole = order[start : start + global_batch]
        yield whole[len(whole) * rank // world : len(whole) * (rank + 1) // world]


def shuffled(images: int, seed: int, epoch: int) -> Indices:
    """The order of an epoch, int64 [images]: the same on every rank and for every number of ranks."""
    import numpy as np

    return np.random.default_rng([seed, epoch]).permutation(images)


class Files:
    """The raw form's files of a split, by class and name, and their labels: classes' positions in the manifest.

    Arrays, and no object per file: a million strings are 100 MB in each process, and Python writes to each that it
    reads. `list` is the file of `raw.listed` that DALI reads too; None if there could be none.
    """

    def __init__(self, folder: Path, split: str) -> None:
        import numpy as np

        manifest = Manifest.read(folder)
        self.root = f"{manifest.data(folder)}/{split}"
        self.lines, self.list = raw.listed(folder, manifest, split)
        a_piece = 1 << 24  # the whole would be as large again
        pieces = range(0, len(self.lines), a_piece)
        ends = [np.flatnonzero(self.lines[n : n + a_piece] == ord("\n")) + n for n in pieces]
        self.ends = np.concatenate([np.array([-1]), *ends])
        counts = manifest.splits[split].images_per_class
        self.labels = np.repeat(np.arange(len(manifest.classes)), [counts.get(name, 0) for name in manifest.classes])
        if len(self) != len(self.labels):
            raise RuntimeError(f"{self.list}: lists {len(self)} files, the manifest says {len(self.labels)}: remove it")

    def __len__(self) -> int:
        return len(self.ends) - 1

    def path(self, index: int) -> str:
        """The file of a picture."""
        line = self.lines[self.ends[index] + 1 : self.ends[index + 1]].tobytes()
        return f"{self.root}/{os.fsdecode(line.rpartition(b' ')[0])}"
