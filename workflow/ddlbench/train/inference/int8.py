"""Weights and activations of linear layers in 8-bit integers, by torchao; all else stays in the
recipe's precision.

torchao is where PyTorch keeps quantisation: `torch.ao.quantization` is deprecated and to be
deleted. Weights are quantised per row when the model is made ready, activations per row while it
responds. Convolutions stay as they are: of a model that is nearly all convolutions little changes,
and the record's bytes show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddlbench.core import registry

if TYPE_CHECKING:
    from torch import nn

PACKAGE = DISTRIBUTION = "torchao"
INSTALL = "make install"
FRAMEWORK = "ddp"
SPLITS = False


def lacks(device: str) -> str | None:
    """Report that torchao is missing; return None if it is there."""
    return None if registry.importable(PACKAGE) else f"torchao is not installed: {INSTALL}"


def ready(model: nn.Module) -> nn.Module:
    """Return the model with quantised linear layers."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return model
