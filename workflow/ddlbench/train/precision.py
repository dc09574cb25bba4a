"""How a model computes: in the number format of the recipe, with the options that all frameworks
have.

`config/recipes/` holds a recipe's values. Its learning rates are in `core/schedule.py`, its
optimizers in `optimizers.py`.
"""

from typing import Any

import torch

from ddlbench.core.spec import RunSpec


def set_precision(spec: RunSpec) -> None:
    """Set how this process multiplies fp32 matrices on GPUs: in TensorFloat-32 if the recipe says
    tf32, else exactly. And whether cuDNN times its algorithms before it takes one (option
    `cudnn_benchmark`).

    PyTorch's own default is neither: exact products, but convolutions in TensorFloat-32. Both of
    its switches are set (torch 2.13), because reading one where only the other was set is an error,
    and torch.compile reads the old one.
    """
    tf32 = spec.recipe.precision == "tf32"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    backends: Any = torch.backends  # its types lack these switches
    for switch in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn):
        switch.fp32_precision = "tf32" if tf32 else "ieee"
    backends.cudnn.benchmark = spec.option("cudnn_benchmark")


def autocast(spec: RunSpec) -> Any:
    """Return what a forward pass runs under: PyTorch's autocast to bf16 or fp16, which does nothing
    for fp32 and tf32.

    A context manager and a decorator. Loss scaling, which fp16 needs, is the framework's part.
    """
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    wanted = spec.recipe.precision in kinds
    return torch.autocast(
        spec.device, dtype=kinds.get(spec.recipe.precision, torch.bfloat16), enabled=wanted
    )


def prepare(model: torch.nn.Module, spec: RunSpec) -> None:
    """Make the model what the recipe and the options of all frameworks want, before a framework
    takes it.
    """
    layout = torch.channels_last if spec.option("channels_last") else torch.contiguous_format
    model.to(memory_format=layout)  # type: ignore[call-overload]
    forward = model.forward

    def precisely(images: torch.Tensor) -> torch.Tensor:
        # Within the model, so that it holds under every framework; scores are fp32 for the loss.
        with autocast(spec):
            scores: torch.Tensor = forward(images.contiguous(memory_format=layout))
            return scores.float()

    model.forward = precisely
    if spec.option("compile"):
        # One program for each size of batch. Else torch makes one for all sizes when the first
        # smaller batch comes, and keeps to that slower one for the rest of the run.
        model.compile(dynamic=False, mode=spec.option("compile_mode"))
