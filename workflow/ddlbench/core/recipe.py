"""What decides accuracy: a recipe, each of its keys declared once. `spec.RunSpec` holds one."""

from __future__ import annotations  # records are held to the fields' types as they are written here

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, replace
from typing import Any

from ddlbench.core.roles import REPEAT, SETTING, Role

# The optimizers, and how many numbers each keeps per parameter. `train/optimizers.py` makes them.
STATES = {"sgd": 1, "lars": 1, "adamw": 2, "lamb": 2}


# JSON schema's words for rules, and pydantic's, which `settings/keys.py` hands them to.
RULES = {
    "minimum": "ge",
    "exclusiveMinimum": "gt",
    "maximum": "le",
    "exclusiveMaximum": "lt",
    "minLength": "min_length",
}


def key(description: str, default: Any = MISSING, enum: Iterable[str] = (), **rules: Any) -> Any:
    """Define a field that people set in a YAML file: what it means, its default, which texts it may
    be, its other rules.

    Without a default it is required. `settings/keys.py` checks files by its metadata, and its type
    by the annotation.
    """
    metadata = {
        "description": description,
        **{RULES.get(rule, rule): value for rule, value in rules.items()},
    }
    if names := [*enum]:
        metadata |= {
            "pattern": f"^({'|'.join(map(re.escape, names))})$",
            "json_schema_extra": {"enum": names},
        }
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings that decide accuracy; `config/recipes/<name>.yaml`.

    Epoch numbers count from 0, fractions allowed.

    A recipe key is declared here and nowhere else: schema, `config/README.md`, table columns and
    records follow. A new one needs a default that trains what was trained before, and a place in
    `spec.OMITTED`: else all runs are stale. One that not every training uses has a place in
    `USED_WITH`: else a change of it makes those stale that do not.
    """

    name: str
    optimizer: str = key("The optimizer.", "sgd", enum=[*STATES])
    base_lr: float = key(
        "Learning rate at base_batch images per step; scaled with the global batch as lr_scaling"
        " says.",
        exclusiveMinimum=0,
    )
    base_batch: int = key("Global batch size that base_lr is meant for [images].", minimum=1)
    lr_scaling: str = key(
        "How the rate grows with the global batch, linear (k times the batch, k times the rate),"
        " sqrt, or none.",
        "linear",
        enum=["linear", "sqrt", "none"],
    )
    momentum: float = key("Momentum of sgd and lars.", 0.9, minimum=0, exclusiveMaximum=1)
    nesterov: bool = key("Whether momentum takes Nesterov's form.", False)
    beta1: float = key(
        "Decay of the mean of gradients, of adamw and lamb.", 0.9, minimum=0, exclusiveMaximum=1
    )
    beta2: float = key(
        "Decay of the mean squared gradient, of adamw and lamb.",
        0.999,
        minimum=0,
        exclusiveMaximum=1,
    )
    trust_coefficient: float = key(
        "Factor of the layer-wise rates of lars.", 0.001, exclusiveMinimum=0
    )
    weight_decay: float = key(
        "L2 penalty (sgd, lars, lamb), or decoupled decay (adamw), of the parameters that decay.",
        0.0,
        minimum=0,
    )
    decay_norm_and_bias: bool = key(
        "Whether parameters of normalisation layers and biases decay too.", True
    )
    clip_norm: float | None = key(
        "Each step's gradients are scaled down to at most this norm, taken over all parameters."
        " null leaves them as they are.",
        None,
        exclusiveMinimum=0,
    )
    warmup_epochs: float = key(
        "Epochs over which the rate rises from warmup_lr to the schedule's.", minimum=0
    )
    warmup_lr: float | None = key("Rate at which warm-up begins; null is base_lr.", None, minimum=0)
    lr_min: float = key("Where the cosine and the polynomial schedule end.", 0.0, minimum=0)
    step_epochs: tuple[float, ...] = key(
        "Epochs (from 0) at which the step schedule lowers the rate.", (30, 60, 80)
    )
    step_factor: float = key(
        "Factor by which the step schedule changes the rate.", 0.1, exclusiveMinimum=0
    )
    gamma: float = key(
        "Factor of the rate from epoch to epoch, of schedule exponential.", 0.95, exclusiveMinimum=0
    )
    exponential_start: str = key(
        "From when the exponential schedule counts its epochs: from the start of training, so that"
        " it is under the peak by the end of warm-up, or from the end of warm-up, which then"
        " reaches the peak.",
        "training",
        enum=["training", "warmup_end"],
    )
    cosine_moves: str = key(
        "Whether the cosine schedule moves once per epoch or with every step.",
        "epoch",
        enum=["epoch", "step"],
    )
    power: float = key("Power of the polynomial schedule.", 2.0, exclusiveMinimum=0)
    decay_epochs: float | None = key(
        "Epochs after warm-up over which the polynomial schedule falls; null is to the end of the"
        " run.",
        None,
        exclusiveMinimum=0,
    )
    label_smoothing: float = key(
        "Label smoothing: share of the label that is spread over all classes.",
        0.0,
        minimum=0,
        maximum=1,
    )
    augmentation: str = key(
        "none uses each picture as it is; imagenet is random resized crop and flip, centre crop to"
        " validate.",
        "none",
        enum=["none", "imagenet"],
    )
    image_size: int = key(
        "Width and height of the pictures that the model sees [pixels].", minimum=8, maximum=4096
    )
    precision: str = key(
        "Number format of training. tf32 is fp32 with matrix products in TensorFloat-32 (GPUs"
        " only); bf16 and fp16 are autocast, the latter with loss scaling.",
        "fp32",
        enum=["fp32", "tf32", "bf16", "fp16"],
    )
    accumulation: int = key(
        "Gradient accumulation: micro-batches into which each worker splits its batch of a step, to"
        " save memory.",
        1,
        minimum=1,
    )
    sync_batch_norm: bool = key(
        "Whether batch norm takes mean and variance over the images of all workers in a step;"
        " otherwise each worker has its own. By PyTorch's SyncBatchNorm, with horovod by its own;"
        " GPUs only.",
        False,
    )
    zero_init_last: bool | None = key(
        "Whether the last normalisation of each residual block begins with weight 0, so that the"
        " block begins as its shortcut. null leaves it to the model: timm's ResNets begin with 0,"
        " resnet8_half with 1. Models without such blocks take null only.",
        None,
    )
    seed: int = key("Seed of repeat 1; repeat n uses seed + n - 1.", 1, minimum=0)


# Keys that not every training uses: which setting of the run, or key of its recipe, decides it, and
# with which of its values.
USED_WITH = {
    "momentum": ("optimizer", ("sgd", "lars")),
    "nesterov": ("optimizer", ("sgd", "lars")),
    "beta1": ("optimizer", ("adamw", "lamb")),
    "beta2": ("optimizer", ("adamw", "lamb")),
    "trust_coefficient": ("optimizer", ("lars",)),
    "lr_min": ("schedule", ("cosine", "polynomial")),
    "step_epochs": ("schedule", ("step",)),
    "step_factor": ("schedule", ("step",)),
    "gamma": ("schedule", ("exponential",)),
    "exponential_start": ("schedule", ("exponential",)),
    "cosine_moves": ("schedule", ("cosine",)),
    "power": ("schedule", ("polynomial",)),
    "decay_epochs": ("schedule", ("polynomial",)),
}
# Of these, keys that are newer than finished runs: they stand in the text of no run of another
# schedule.
_NEWER = ("exponential_start", "cosine_moves")
# What keys are in a comparison of runs; all others are settings that both sides share, said by
# their value.
ROLES = {
    "seed": Role(REPEAT),
    "image_size": Role(SETTING, title="{} pixels"),
    **{name: Role(SETTING, follows=(decides,)) for name, (decides, _) in USED_WITH.items()},
    "warmup_lr": Role(SETTING, follows=("warmup_epochs",)),
    "augmentation": Role(SETTING, follows=("loader",)),
}


def unused(recipe: Mapping[str, Any], schedule: str) -> set[str]:
    """Return the keys of a recipe that a training by this schedule does not use: changing them
    makes no run stale.
    """
    settings = {**recipe, "schedule": schedule}
    names = {
        name for name, (decides, values) in USED_WITH.items() if settings.get(decides) not in values
    }
    if not recipe.get("warmup_epochs"):
        names |= {"warmup_lr", "exponential_start"}
    if not recipe.get("step_epochs"):
        names.add("step_factor")
    return names


def for_schedule(recipe: Recipe, schedule: str) -> Recipe:
    """Return the recipe with newer keys of other schedules at their default, at which a run's text
    leaves them out (`spec.OMITTED`).
    """
    others = [name for name in _NEWER if schedule not in USED_WITH[name][1]]
    return replace(recipe, **{name: getattr(Recipe, name) for name in others})


def numbers_kept(optimizer: str, momentum: float) -> int:
    """Return how many numbers an optimizer keeps per parameter; SGD without momentum keeps none."""
    return 0 if optimizer == "sgd" and not momentum else STATES[optimizer]


def needs_whole_layers(optimizer: str) -> bool:
    """Return whether the optimizer takes norms of complete parameters. Then none of its parameters
    or states may be a piece of flat memory.

    DeepSpeed's ZeRO (stages 1 to 3) shards them into such pieces. Norms of FSDP's tensors are those
    of the complete tensors.
    """
    return optimizer in ("lars", "lamb")
