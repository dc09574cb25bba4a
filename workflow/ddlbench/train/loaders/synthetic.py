"""synthetic: one random batch that stays on the device; the ceiling that no real loader can pass.

There is nothing to learn from random pictures: its accuracy means nothing, and tables leave it out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ddlbench.train.loaders._sampling import share

if TYPE_CHECKING:
    from ddlbench.core.spec import RunSpec
    from ddlbench.train.loaders import Batch, PictureSet

FORMS: tuple[str, ...] = ()
FAMILY = "synthetic"
LEARNS = False
DEVICE: str | None = None
PACKAGE: str | None = "torch"
INSTALL = "make install"
DISTRIBUTION: str | None = "torch"


class Loader:
    """A loader of as many images an epoch as the data set has, all from one batch."""

    def __init__(
        self, source: PictureSet, spec: RunSpec, rank: int, state: dict[str, Any] | None = None
    ) -> None:
        import torch

        generator = torch.Generator().manual_seed(spec.seed + rank)
        size = spec.recipe.image_size
        device = torch.device(spec.device)
        self.images = torch.randn(spec.batch_per_worker, 3, size, size, generator=generator).to(
            device
        )
        self.labels = torch.randint(
            source.classes, (spec.batch_per_worker,), generator=generator
        ).to(device)
        self.sizes = [
            len(b) for b in share(range(source.images), spec.global_batch, rank, spec.workers)
        ]

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """Yield (images, labels) per step."""
        for size in self.sizes[first_step:]:
            yield self.images[:size], self.labels[:size]

    def state(self) -> None:
        """Return None: the batch is made from the seed."""
