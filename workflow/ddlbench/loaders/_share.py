"""What loaders have in common: who gets which sample, and the normalisation of pixels."""

from __future__ import annotations

# ImageNet's channel means and deviations on the 0..1 scale, as every published ResNet recipe uses them.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def steps(images: int, global_batch: int) -> int:
    """Steps an epoch: the last batch may be smaller, no sample is dropped or repeated."""
    return -(-images // global_batch)


def share(order: list[int], global_batch: int, rank: int, world: int) -> list[list[int]]:
    """One rank's batches of an epoch: each global batch is a run of `order`, cut into equal parts, one a rank.

    The last, smaller one is cut as evenly as it goes; a rank's part of it can be empty.
    """
    batches = []
    for start in range(0, len(order), global_batch):
        whole = order[start : start + global_batch]
        begin, end = len(whole) * rank // world, len(whole) * (rank + 1) // world
        batches.append(whole[begin:end])
    return batches


def shuffled(images: int, seed: int, epoch: int) -> list[int]:
    """The order of an epoch: the same on every rank and for every number of ranks."""
    import numpy as np

    # NumPy's, because Python's own shuffle of ImageNet takes a second of every epoch.
    return np.random.default_rng([seed, epoch]).permutation(images).tolist()
