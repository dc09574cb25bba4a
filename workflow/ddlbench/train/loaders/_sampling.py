"""Who gets which sample: the order of an epoch, and each rank's part of each global batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Indices: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
Order: TypeAlias = "Indices | range"


def share(
    order: Order, global_batch: int, rank: int, world: int, first_step: int = 0
) -> Iterator[Order]:
    """Yield one rank's batches of an epoch, from `first_step` on: each global batch is a run of
    `order`, cut into equal parts.

    The last, smaller one is cut as evenly as possible, so that a rank's part of it can be empty.
    Parts are views.
    """
    for start in range(first_step * global_batch, len(order), global_batch):
        whole = order[start : start + global_batch]
        yield whole[len(whole) * rank // world : len(whole) * (rank + 1) // world]


def shuffled(images: int, seed: int, epoch: int) -> Indices:
    """Return the order of an epoch, int64 [images]: the same on every rank and for every number of
    ranks.
    """
    import numpy as np

    return np.random.default_rng([seed, epoch]).permutation(images)
