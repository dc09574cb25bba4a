"""The learning rate at each moment of training: peak, warm-up and schedule.

Pure functions of a run, tested against the papers they come from. The loop sets the rate before
each step (`train/loop.py`); the planner refuses a run whose warm-up would fall (`plan/runs.py`).
"""

import math

from ddlbench.core.recipe import Recipe
from ddlbench.core.spec import RunSpec


def peak_lr(recipe: Recipe, global_batch: int) -> float:
    """Return the learning rate after warm-up, for a batch k times `base_batch`.

    linear: k times the rate (Goyal et al. 2018, arXiv:1706.02677, section 2.1); sqrt: its root
    times the rate, as LAMB asks for (You et al. 2020, arXiv:1904.00962, section 4).
    """
    k = global_batch / recipe.base_batch
    return recipe.base_lr * {"linear": k, "sqrt": math.sqrt(k), "none": 1.0}[recipe.lr_scaling]


def learning_rate(spec: RunSpec, epoch: float) -> float:
    """Return the learning rate at a moment of training; `epoch` counts from 0 and has a fraction
    within the epoch.

    Gradual warm-up by the step (Goyal et al. 2018, section 2.2), then the schedule.
    """
    length = spec.recipe.warmup_epochs
    if epoch < length:
        begin, end = warm_up(spec)
        return begin + (end - begin) * epoch / length
    return scheduled_lr(spec, epoch)


def warm_up(spec: RunSpec) -> tuple[float, float]:
    """Return the learning rates that warm-up begins and ends with.

    It ends where the schedule stands by then, so that no rate jumps. A schedule that ends with the
    run has no such place if the run is over by then: the run is all warm-up, on its way to the
    peak.
    """
    recipe = spec.recipe
    begin = recipe.base_lr if recipe.warmup_lr is None else recipe.warmup_lr
    ends_with_the_run = spec.schedule == "cosine" or (
        spec.schedule == "polynomial" and recipe.decay_epochs is None
    )
    if ends_with_the_run and spec.full_epochs <= recipe.warmup_epochs:
        return begin, peak_lr(recipe, spec.global_batch)
    return begin, scheduled_lr(spec, recipe.warmup_epochs)


def scheduled_lr(spec: RunSpec, epoch: float) -> float:
    """Return the learning rate of the schedule alone.

    step, cosine and exponential change only between epochs, as Aach et al. 2023 define them
    (doi:10.1186/s40537-023-00765-w, section on scheduling). The cosine changes at each step if the
    recipe sets this. Exponential counts from `exponential_start`. polynomial changes at each step
    from the end of warm-up, as in MLPerf's reference for LARS.
    """
    recipe, t = spec.recipe, math.floor(epoch)
    peak = peak_lr(recipe, spec.global_batch)
    if spec.schedule == "step":
        return peak * recipe.step_factor ** sum(t >= milestone for milestone in recipe.step_epochs)
    if spec.schedule == "cosine":
        at = epoch if recipe.cosine_moves == "step" else t
        return recipe.lr_min + (peak - recipe.lr_min) / 2 * (
            1 + math.cos(math.pi * at / spec.full_epochs)
        )
    if spec.schedule == "exponential":
        if recipe.exponential_start == "warmup_end":
            t = max(0, math.floor(epoch - recipe.warmup_epochs))
        return peak * float(recipe.gamma**t)
    if spec.schedule == "polynomial":
        length = recipe.decay_epochs or spec.full_epochs - recipe.warmup_epochs
        share = max(0.0, 1 - (epoch - recipe.warmup_epochs) / length) if length > 0 else 0.0
        return recipe.lr_min + (peak - recipe.lr_min) * float(share**recipe.power)
    raise ValueError(f"unknown schedule {spec.schedule}")


def warm_up_fault(spec: RunSpec) -> str | None:
    """Return why the warm-up of this run would lower the rate, and what is allowed; None if it does
    not.

    Where warm-up begins at the peak, there is nothing to warm up: the rate follows the schedule,
    and that is no fault.
    """
    recipe, length = spec.recipe, spec.recipe.warmup_epochs
    peak = peak_lr(recipe, spec.global_batch)
    begin, end = warm_up(spec)
    if not length or begin == peak or begin <= end:
        return None
    if begin > peak:
        return (
            f"warm-up would fall from {begin:g} to {peak:g}, the rate of recipe {recipe.name} at"
            f" {spec.global_batch} images a step; allowed: a warmup_lr of at most {peak:g}"
        )
    return (
        f"warm-up would fall from {begin:g} to {end:g}, where the schedule stands after {length:g}"
        f" warmup_epochs of recipe {recipe.name}; allowed: fewer warmup_epochs, a warmup_lr of at"
        f" most {end:g}, or more epochs"
    )
