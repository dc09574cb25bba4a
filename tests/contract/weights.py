"""A trained model's weights, put together from all ranks: only tests ask for them, to compare
frameworks.
"""

import torch
from torch import nn


def whole(model: nn.Module) -> dict[str, torch.Tensor]:
    """The state dict of a model, the whole of it on every rank; all ranks must ask."""
    # Of DeepSpeed's ZeRO 3, small parameters are whole already, and would be sharded after.
    sharded = [p for p in model.parameters() if hasattr(p, "ds_persist") and not p.ds_persist]
    if sharded:
        import deepspeed

        with deepspeed.zero.GatheredParameters(sharded):
            return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    # FSDP's are DTensors.
    return {
        k: v.full_tensor() if hasattr(v, "full_tensor") else v
        for k, v in model.state_dict().items()
    }
