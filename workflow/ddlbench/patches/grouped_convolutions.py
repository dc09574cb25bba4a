"""PyTorch 2.13, whose counter of operations gives the weights of grouped convolutions too many in
the backward pass.

It counts their gradient as if there were one group (github.com/pytorch/pytorch, pull request
183405, which patches it). Without a guard: it is the count of the forward pass twice, which is
right in every release.
"""

from collections.abc import Sequence
from typing import Any


def counting() -> dict[Any, Any]:
    """Return what FlopCounterMode takes as `custom_mapping`."""
    import torch

    return {torch.ops.aten.convolution_backward: _convolution_backward}


def _convolution_backward(
    gradient: Sequence[int],
    inputs: Sequence[int],
    weight: Sequence[int],
    *settings: Any,
    **named: Any,
) -> int:
    """Count the operations of a convolution's backward pass, from shapes: those of its forward pass
    for each of the two gradients that are requested.
    """
    from torch.utils.flop_counter import conv_flop_count

    *_, transposed, _, _, wanted = settings  # of aten.convolution_backward
    return int(conv_flop_count([*inputs], [*weight], [*gradient], transposed) * sum(wanted[:2]))
