"""PyTorch 2.13, whose loss scaler does not say how many steps it left out.

Its scale tells: it falls after each of them. But `get_scale` makes the host wait for the GPU in
every step, so the scale is looked at on its device, by a private name that is asked for.

Upstream (pytorch/pytorch): `GradScaler` could count the steps it skips beside `_growth_tracker`, on
the same device, and offer the count as a tensor. Everybody who logs skipped steps today calls
`get_scale()` twice per step, and with it `cudaStreamSynchronize`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddlbench import patches

if TYPE_CHECKING:
    from torch import Tensor


class SkippedSteps:
    """A counter of the steps that a loss scaler leaves out.

    `before` are those of the processes that a run resumes from.

    Raises ReleaseError if the scaler keeps its scale elsewhere.
    """

    def __init__(self, scaler: Any) -> None:
        self.before = 0
        self._counted: Tensor | None = None
        if scaler.is_enabled():
            self._scale = patches.private(
                scaler, "_get_scale_async", "torch", ("2.13",), "loss_scale"
            )
            self._update = scaler.update
            scaler.update = self._counting_update  # DeepSpeed's engine calls it, too

    @property
    def steps(self) -> int:
        """Return how many steps were left out; on a GPU this waits for it."""
        return self.before + (0 if self._counted is None else int(self._counted))

    def _counting_update(self, new_scale: Any = None) -> None:
        scale = self._scale()  # changed in place
        old = scale.clone()
        self._update(new_scale)
        lower = (scale < old).long()
        self._counted = lower if self._counted is None else self._counted + lower
