"""torch.compile: the model's operators fused into code made for it, by a C++ compiler on CPUs, by
Triton on GPUs.

The first request compiles for its batch size; the first of another size compiles once more, then
for any size. A record says how long each first request took.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ddlbench.core import registry
from ddlbench.patches import inductor_compiler

if TYPE_CHECKING:
    from torch import nn

PACKAGE = DISTRIBUTION = "torch"
INSTALL = "make install"
FRAMEWORK = "ddp"
SPLITS = False


def lacks(device: str) -> str | None:
    """Report the compiler that torch.compile needs on this device and lacks; return None if it is
    there.
    """
    if device == "cuda":
        return (
            None
            if registry.importable("triton")
            else "torch.compile needs Triton on GPUs, which is not installed"
        )
    if inductor_compiler.has_compiler():
        return None
    return "torch.compile needs a C++ compiler on CPUs, and there is none: install g++, or set CXX"


def ready(model: nn.Module) -> nn.Module:
    """Return the model, which is compiled at its first request."""
    import torch

    return cast("nn.Module", torch.compile(model, dynamic=False))
