"""The model as PyTorch runs it, in its recipe's precision: what the other ways are compared
with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

PACKAGE = DISTRIBUTION = "torch"
INSTALL = "make install"
FRAMEWORK = "ddp"
SPLITS = False


def lacks(device: str) -> str | None:
    """Return None: nothing is needed."""
    return None


def ready(model: nn.Module) -> nn.Module:
    """Return the model itself."""
    return model
