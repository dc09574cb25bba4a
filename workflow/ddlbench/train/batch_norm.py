"""Batch norm beyond PyTorch's: batches of one value per channel, and statistics over the images of
all ranks.

Both are put into a model's own batch-norm layers (torch's, and timm's, which also have an
activation). Parameters, buffers and their names stay. `models.build` does the first for every
model. `setup.py` does the second if the recipe says `sync_batch_norm`; it is PyTorch's
SyncBatchNorm or Horovod's, and both take tensors of GPUs only.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def accept_one_value(model: nn.Module) -> None:
    """Let batch norm train on a batch that has one value per channel: one image, where a layer's
    picture is 1x1.

    PyTorch refuses it, so an epoch whose last batch is one image would fail. The mean of one value
    is the value, its variance is 0. So the layer returns its bias, and neither its input nor its
    weight gets a gradient. The running statistics stay unchanged, because one value has no
    information about a variance.
    """
    _convert(model, _one_value_class, {})


def synchronise(model: nn.Module, layer: type[nn.Module]) -> None:
    """Let every batch norm use mean and variance over all ranks' images while it trains.

    `layer` is the framework's class of batch norm that does it (`Framework.sync_batch_norm`). All
    ranks must run the same layers, each with an image at least.
    """
    # The group in which PyTorch's layer meets the other ranks: None is all of them.
    of: Any = layer
    _convert(model, lambda base: _synchronised_class(of, base), {"process_group": None})


def _convert(model: nn.Module, changed: Callable[[type], type], attributes: dict[str, Any]) -> None:
    # Another class for the same object: its parameters, names, hooks and activation stay as they
    # are.
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.__class__ = changed(type(module))
            vars(module).update(attributes)


def _after(module: nn.Module, y: torch.Tensor) -> torch.Tensor:
    """Apply what timm's batch norm does after normalising: drop-out and activation."""
    for name in ("drop", "act"):
        if hasattr(module, name):
            y = getattr(module, name)(y)
    return y


def _per_channel(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return values.view(1, -1, *[1] * (x.ndim - 2))


def _affine(module: Any, y: torch.Tensor) -> torch.Tensor:
    if module.weight is None:
        return y
    # Times 1, so that the bias gets a gradient of its own. Where there is one value per channel, it
    # would be a view of y's, and a second norm whose output is added to this one's would hold the
    # same memory as its gradient.
    bias = module.bias * 1.0
    return (y * _per_channel(module.weight, y) + _per_channel(bias, y)).to(y.dtype)


@cache
def _one_value_class(base: Any) -> type:
    class OneValue(base):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> Any:
            if not self.training or x.numel() != x.shape[1]:
                return super().forward(x)
            return _after(self, _affine(self, x - x))

    OneValue.__name__ = OneValue.__qualname__ = base.__name__
    return OneValue


@cache
def _synchronised_class(layer: Any, base: Any) -> type:
    class Synchronised(layer):  # type: ignore[misc]
        @torch.compiler.disable  # type: ignore[untyped-decorator]
        def forward(self, x: torch.Tensor) -> Any:
            return _after(self, super().forward(x))

    Synchronised.__name__ = Synchronised.__qualname__ = f"Sync{base.__name__}"
    return Synchronised
