"""The parts of a rank's batch that gradients are accumulated over; also where ranks have unequal
shares, or none.
"""

from collections.abc import Iterator

import torch

from ddlbench.core.spec import RunSpec
from ddlbench.train.loaders import Batch


class Parts:
    """The cutting of batches into the recipe's `accumulation` parts.

    Every rank computes as many parts in a step. Where no image is left for one, it computes `spare`
    with weight 0.
    """

    def __init__(self, spec: RunSpec, device: torch.device) -> None:
        size = spec.recipe.image_size
        self.count = spec.recipe.accumulation
        self.spare: Batch = (
            torch.zeros(1, 3, size, size).to(device),
            torch.zeros(1, dtype=torch.int64).to(device),
        )

    def cut(
        self, x: torch.Tensor, y: torch.Tensor, keep: bool
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, float, bool]]:
        """Yield (images, labels, weight, whether it is the last) of each part.

        `keep` makes the last part with images the spare one. That is for the step before an epoch's
        last: kept in every step, each batch would take other memory than the one before. No
        checkpoint is written between these two steps, so that the spare part is not in it.
        """
        latest, n = self.spare, len(y)
        for part in range(self.count):
            here = slice(n * part // self.count, n * (part + 1) // self.count)
            if here.start < here.stop:
                latest = x[here], y[here]
            yield (*latest, float(here.start < here.stop), part == self.count - 1)
        if keep:
            self.spare = latest
