"""PyTorch 2.13: FSDP2 takes a reduce-scatter of the user's, but the one that it has lies in a private module.

Without a guard: where it lies elsewhere, importing it says so before training begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn


def watch(model: nn.Module, look: Callable[[Tensor], None]) -> None:
    """Let `look` see each message of gradients when a block of a sharded model is about to send it."""
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter

    class WatchedReduceScatter(DefaultReduceScatter):
        def __call__(self, output_tensor: Tensor, input_tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            look(input_tensor)
            return super().__call__(output_tensor, input_tensor, *args, **kwargs)

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_reduce_scatter(WatchedReduceScatter())
