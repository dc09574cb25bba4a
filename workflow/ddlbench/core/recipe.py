"""What decides accuracy: a recipe, each of its keys declared once. `spec.RunSpec` holds one."""

from __future__ import annotations  # records are held to the fields' types as they are written here

import re
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Annotated, Any

from annotated_types import Ge

from ddlbench.core.roles import REPEAT, SETTING, Role

# The optimisers, and how many numbers each keeps per parameter. `train/optimizers.py` makes them.
STATES = {"sgd": 1, "lars": 1, "adamw": 2, "lamb": 2}


# JSON schema's words for rules, and pydantic's, which `settings/keys.py` hands them to.
RULES = {
    "minimum": "ge",
    "exclusiveMinimum": "gt",
    "maximum": "le",
    "exclusiveMaximum": "lt",
    "minLength": "min_length",
}


def key(description: str, enum: Iterable[str] = (), **rules: Any) -> dict[str, Any]:
    """Metadata of a field that people set in a YAML file: what it means, which texts it may be, its other rules.

    The rest comes from the field: its type from the annotation, its default from the field's own. `settings/keys.py`
    checks files by them.
    """
    made = {"description": description, **{RULES.get(rule, rule): value for rule, value in rules.items()}}
    names = [*enum]
    if names:
        made |= {"pattern": f"^({'|'.join(map(re.escape, names))})$", "json_schema_extra": {"enum": names}}
    return made


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides accuracy; `config/recipes/<name>.yaml`. Epoch numbers count from 0, fractions allowed.

    A recipe key is declared here and nowhere else: schema, `config/README.md`, table columns and records follow. A new
    one needs a default that trains what was trained before it: it is then left out of `to_json`, and no finished run
    becomes stale.
    """

    name: str
    optimizer: str = field(default="sgd", metadata=key("The optimiser.", enum=[*STATES]))
    base_lr: float = field(
        metadata=key(
            "Learning rate at base_batch images per step; scaled with the global batch as lr_scaling says.",
            exclusiveMinimum=0,
        )
    )
    base_batch: int = field(metadata=key("Global batch size that base_lr is meant for [images].", minimum=1))
    lr_scaling: str = field(
        default="linear",
        metadata=key(
            "How the rate grows with the global batch, linear (k times the batch, k times the rate), sqrt, or none.",
            enum=["linear", "sqrt", "none"],
        ),
    )
    momentum: float = field(default=0.9, metadata=key("Momentum of sgd and lars.", minimum=0, exclusiveMaximum=1))
    nesterov: bool = field(default=False, metadata=key("Whether momentum takes Nesterov's form."))
    beta1: float = field(
        default=0.9, metadata=key("Decay of the mean of gradients, of adamw and lamb.", minimum=0, exclusiveMaximum=1)
    )
    beta2: float = field(
        default=0.999,
        metadata=key("Decay of the mean of squared gradients, of adamw and lamb.", minimum=0, exclusiveMaximum=1),
    )
    trust_coefficient: float = field(
        default=0.001, metadata=key("Factor of the layer-wise rates of lars.", exclusiveMinimum=0)
    )
    weight_decay: float = field(
        default=0.0,
        metadata=key(
            "L2 penalty (sgd, lars, lamb), or decoupled decay (adamw), of the parameters that decay.", minimum=0
        ),
    )
    decay_norm_and_bias: bool = field(
        default=True, metadata=key("Whether parameters of normalisation layers and biases decay too.")
    )
    clip_norm: float | None = field(
        default=None,
        metadata=key(
            "Each step's gradients are scaled down to at most this norm, taken over all parameters. null leaves them "
            "as they are.",
            exclusiveMinimum=0,
        ),
    )
    warmup_epochs: float = field(
        metadata=key("Epochs over which the rate rises from warmup_lr to the schedule's.", minimum=0)
    )
    warmup_lr: float | None = field(
        default=None, metadata=key("Rate at which warm-up begins; null is base_lr.", minimum=0)
    )
    lr_min: float = field(default=0.0, metadata=key("Where the cosine and the polynomial schedule end.", minimum=0))
    step_epochs: tuple[Annotated[float, Ge(0)], ...] = field(
        default=(30, 60, 80), metadata=key("Epochs (from 0) at which the step schedule lowers the rate.")
    )
    step_factor: float = field(
        default=0.1, metadata=key("Factor by which the step schedule changes the rate.", exclusiveMinimum=0)
    )
    gamma: float = field(
        default=0.95,
        metadata=key("Factor by which the exponential schedule changes the rate each epoch.", exclusiveMinimum=0),
    )
    exponential_start: str = field(
        default="training",
        metadata=key(
            "From when the exponential schedule counts its epochs: from the start of training, so that it is under the "
            "peak by the end of warm-up, or from the end of warm-up, which then reaches the peak.",
            enum=["training", "warmup_end"],
        ),
    )
    cosine_moves: str = field(
        default="epoch",
        metadata=key("Whether the cosine schedule moves once per epoch or with every step.", enum=["epoch", "step"]),
    )
    power: float = field(default=2.0, metadata=key("Power of the polynomial schedule.", exclusiveMinimum=0))
    decay_epochs: float | None = field(
        default=None,
        metadata=key(
            "Epochs after warm-up over which the polynomial schedule falls; null is to the end of the run.",
            exclusiveMinimum=0,
        ),
    )
    label_smoothing: float = field(
        default=0.0, metadata=key("Share of the label that is spread over all classes.", minimum=0, maximum=1)
    )
    augmentation: str = field(
        default="none",
        metadata=key(
            "none uses each picture as it is; imagenet is random resized crop and flip, centre crop to validate.",
            enum=["none", "imagenet"],
        ),
    )
    image_size: int = field(
        metadata=key("Width and height of the pictures that the model sees [pixels].", minimum=8, maximum=4096)
    )
    precision: str = field(
        default="fp32",
        metadata=key(
            "Number format of training. tf32 is fp32 with matrix products in TensorFloat-32 (GPUs only); bf16 and "
            "fp16 are autocast, the latter with loss scaling.",
            enum=["fp32", "tf32", "bf16", "fp16"],
        ),
    )
    accumulation: int = field(
        default=1,
        metadata=key(
            "Parts in which each worker computes its share of a step, one after the other, to save memory.", minimum=1
        ),
    )
    sync_batch_norm: bool = field(
        default=False,
        metadata=key(
            "Whether batch norm takes mean and variance over the images of all workers in a step; otherwise each "
            "worker has its own."
        ),
    )
    zero_init_last: bool | None = field(
        default=None,
        metadata=key(
            "Whether the last normalisation of each residual block begins with weight 0, so that the block begins as "
            "its shortcut. null leaves it to the model: timm's ResNets begin with 0, resnet8_half with 1. Models "
            "without such blocks take null only."
        ),
    )
    seed: int = field(default=1, metadata=key("Seed of repeat 1; repeat n uses seed + n - 1.", minimum=0))


# Keys that every record has had. Later ones are written only where they differ from their default (`core/spec.py`).
_FIRST = frozenset(
    [
        "name",
        "optimizer",
        "base_lr",
        "base_batch",
        "lr_scaling",
        "momentum",
        "nesterov",
        "beta1",
        "beta2",
        "trust_coefficient",
        "weight_decay",
        "decay_norm_and_bias",
        "clip_norm",
        "warmup_epochs",
        "warmup_lr",
        "lr_min",
        "step_epochs",
        "step_factor",
        "gamma",
        "power",
        "decay_epochs",
        "label_smoothing",
        "augmentation",
        "image_size",
        "precision",
        "accumulation",
        "sync_batch_norm",
        "seed",
    ]
)
LATER = {f.name: f.default for f in fields(Recipe) if f.name not in _FIRST and f.default is not MISSING}
# Later keys of the recipe that one schedule uses.
OF_SCHEDULE = {"exponential_start": "exponential", "cosine_moves": "cosine"}
# What keys are in a comparison of runs; all others are settings that both sides share, said by their value.
ROLES = {
    "seed": Role(REPEAT),
    "image_size": Role(SETTING, title="{} pixels"),
    **{name: Role(SETTING, follows=("schedule",)) for name in OF_SCHEDULE},
}


def for_schedule(recipe: Recipe, schedule: str) -> Recipe:
    """The recipe with the keys of other schedules at their default: a change of these makes no run of this one stale.

    That holds for keys which came after the first records; those of before stand in every run's text.
    """
    others = {name: LATER[name] for name, user in OF_SCHEDULE.items() if user != schedule}
    return replace(recipe, **others)


def numbers_kept(optimizer: str, momentum: float) -> int:
    """Numbers that an optimiser keeps per parameter; SGD without momentum keeps none."""
    return 0 if optimizer == "sgd" and not momentum else STATES[optimizer]


def needs_whole_layers(optimizer: str) -> bool:
    """Whether it takes norms of whole parameters: then none of its parameters or states may be a piece of flat memory.

    That is how DeepSpeed's ZeRO shards them (stages 1 to 3). FSDP's tensors know what they are a piece of: their norms
    are those of the whole.
    """
    return optimizer in ("lars", "lamb")
