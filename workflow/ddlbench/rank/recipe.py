"""What decides accuracy: the model, the optimiser and the learning rate. No framework and no loader touches these.

`config/recipes/` holds the values. Learning rates are pure functions, tested against the papers they come from.
"""

from __future__ import annotations

import math
from typing import Any

from ddlbench.spec import Recipe, RunSpec


def peak_lr(recipe: Recipe, global_batch: int) -> float:
    """The rate after warm-up, for a batch k times `base_batch`.

    linear: k times the rate (Goyal et al. 2018, arXiv:1706.02677, section 2.1); sqrt: its root times the rate, as LAMB
    asks for (You et al. 2020, arXiv:1904.00962, section 4).
    """
    k = global_batch / recipe.base_batch
    return recipe.base_lr * {"linear": k, "sqrt": math.sqrt(k), "none": 1.0}[recipe.lr_scaling]


def learning_rate(spec: RunSpec, epoch: float) -> float:
    """The rate at a moment of training; `epoch` counts from 0 and has a fraction within the epoch.

    Gradual warm-up by the step (Goyal et al. 2018, section 2.2), here to where the schedule stands at its end, so that
    no schedule jumps; then the schedule.
    """
    recipe = spec.recipe
    if epoch < recipe.warmup_epochs:
        begin = recipe.base_lr if recipe.warmup_lr is None else recipe.warmup_lr
        target = scheduled_lr(spec, recipe.warmup_epochs)
        return begin + (target - begin) * epoch / recipe.warmup_epochs
    return scheduled_lr(spec, epoch)


def scheduled_lr(spec: RunSpec, epoch: float) -> float:
    """step, cosine and exponential move by whole epochs, as Aach et al. 2023 define them (doi:10.1186/
    s40537-023-00765-w, section on scheduling); polynomial by the step from the end of warm-up, as MLPerf's reference
    for LARS does.
    """
    recipe, t = spec.recipe, math.floor(epoch)
    peak = peak_lr(recipe, spec.global_batch)
    if spec.schedule == "step":
        return peak * recipe.step_factor ** sum(t >= milestone for milestone in recipe.step_epochs)
    if spec.schedule == "cosine":
        return recipe.lr_min + (peak - recipe.lr_min) / 2 * (1 + math.cos(math.pi * t / spec.full_epochs))
    if spec.schedule == "exponential":
        return peak * float(recipe.gamma**t)
    if spec.schedule == "polynomial":
        length = recipe.decay_epochs or spec.full_epochs - recipe.warmup_epochs
        left = max(0.0, 1 - (epoch - recipe.warmup_epochs) / length) if length > 0 else 0.0
        return recipe.lr_min + (peak - recipe.lr_min) * float(left**recipe.power)
    raise ValueError(f"no schedule {spec.schedule}")


def build_model(spec: RunSpec, classes: int) -> Any:
    """The model by name, initialised from the run's seed, the same on every rank."""
    import torch

    from ddlbench.rank import models

    torch.manual_seed(spec.seed)
    return models.build(spec.model, classes, spec.recipe.image_size)


def parameter_groups(spec: RunSpec, model: Any) -> list[dict[str, Any]]:
    """The model's parameters as the recipe's optimiser gets them, for frameworks that bring their own."""
    from ddlbench.rank import optimizers

    return optimizers.groups(spec.recipe, model)


def build_optimizer(spec: RunSpec, model: Any) -> Any:
    """The recipe's optimiser over all parameters; the loop sets the learning rate before each step."""
    from ddlbench.rank import optimizers

    return optimizers.build(spec.recipe, optimizers.groups(spec.recipe, model))


def set_precision(spec: RunSpec) -> None:
    """How this process multiplies fp32 matrices on GPUs: in TensorFloat-32 if the recipe says tf32, else exactly.

    PyTorch's own default is neither: exact products, but convolutions in TensorFloat-32. Both of its switches are set
    (torch 2.13), because reading one where only the other was set is an error, and torch.compile reads the old one.
    """
    import torch

    tf32 = spec.recipe.precision == "tf32"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    backends: Any = torch.backends  # its types lack these switches
    for switch in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn):
        switch.fp32_precision = "tf32" if tf32 else "ieee"


def autocast(spec: RunSpec) -> Any:
    """What a forward pass runs under: PyTorch's autocast to bf16 or fp16, which does nothing for fp32 and tf32.

    A context manager and a decorator. Loss scaling, which fp16 needs, is the framework's part.
    """
    import torch

    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    wanted = spec.recipe.precision in kinds
    return torch.autocast(spec.device, dtype=kinds.get(spec.recipe.precision, torch.bfloat16), enabled=wanted)
