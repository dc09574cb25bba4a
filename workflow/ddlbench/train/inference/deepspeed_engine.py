"""DeepSpeed's inference engine on one worker, without kernel injection, in the precision that the
model has.

It replaces no module of the models that are asked here. Its own kernels replace layers of the
language models that DeepSpeed knows, and exist for GPUs; release 0.19.6 refuses vision transformers
of timm and has none for convolutions. So what is measured is the engine around the model's own
operators: what a request costs through it. What DeepSpeed does to language models is in
examples/language-inference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ddlbench.core import registry

if TYPE_CHECKING:
    from torch import nn

PACKAGE = DISTRIBUTION = FRAMEWORK = "deepspeed"
INSTALL = "make install"
SPLITS = False


def lacks(device: str) -> str | None:
    """Report that DeepSpeed is missing; return None if it is there."""
    return None if registry.importable(PACKAGE) else f"DeepSpeed is not installed: {INSTALL}"


def ready(model: nn.Module) -> nn.Module:
    """Return the model within DeepSpeed's engine."""
    import deepspeed

    kind = next(model.parameters()).dtype  # named, because its default is float16
    engine = deepspeed.init_inference(model, dtype=kind, replace_with_kernel_inject=False)
    return cast("nn.Module", engine)
