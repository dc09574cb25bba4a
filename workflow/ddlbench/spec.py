"""What a run is: a frozen value. Its id, folder, command line and table columns all derive from its fields.

A study and a machine become RunSpecs in `plan/runs.py`; `train.py` trains one; `analysis/collect.py` reads its columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from hashlib import sha256
from typing import Any

from ddlbench import registry


def key(description: str, **rules: Any) -> dict[str, Any]:
    """Metadata of a field that people set in a YAML file: what it means, and what JSON schema says of its values.

    The rest comes from the field: its type from the annotation, its default from the field's own. `settings/keys.py`
    makes the schema and the values of both.
    """
    return {"description": description, **rules}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides accuracy; `config/recipes/<name>.yaml`. Epoch numbers count from 0, fractions allowed.

    A recipe key is declared here and nowhere else: schema, `config/README.md`, table columns and records follow. A new
    one needs a default that trains what was trained before it: it is then left out of `to_json`, and no finished run
    becomes stale.
    """

    name: str
    optimizer: str = field(default="sgd", metadata=key("The optimiser.", enum=["sgd", "lars", "adamw", "lamb"]))
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
    step_epochs: tuple[float, ...] = field(
        default=(30, 60, 80),
        metadata=key("Epochs (from 0) at which the step schedule lowers the rate.", items={"minimum": 0}),
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


# Repeats beyond so many are control runs: other repeats of one cell, spread over a study to see whether the machine
# drifts. A study may have more repeats tomorrow; its control runs keep their ids.
CONTROLS = 1000


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training with all its settings.

    `framework` is its name in the study: a member of `frameworks/`, or a variant, whose `options` name the member and
    its settings, sorted. `workers` are ranks, one device each; `global_batch` is images a step over all of them;
    `repeat` counts from 1 and moves the seed. Where throughput is measured and the rest extrapolated, `epochs` are
    trained of a run of `of_epochs`. `timed` runs have the machine to themselves; those
    that are not say nothing about speed. `profiled` runs carry a profiler and are never timed. A run with
    `interrupt_steps` is killed once, to measure what that costs (`rank/interruption.py`).
    """

    machine: str
    device: str
    dataset: str
    model: str
    recipe: Recipe
    framework: str
    loader: str
    workers: int
    workers_per_node: int
    loader_threads: int
    global_batch: int
    schedule: str
    epochs: int
    repeat: int
    options: tuple[tuple[str, Any], ...] = ()
    of_epochs: int | None = None
    timed: bool = True
    profiled: bool = False
    form: str | None = None  # that the loader reads; None: the one it prefers
    bandwidth_mbit: int | None = None  # of the cable between nodes that are namespaces [Mbit/s]; None: all it can
    interrupt_steps: int | None = None  # all ranks are killed after so many steps, and the run goes on; None: never

    @property
    def id(self) -> str:
        """Readable, and its folder's name: what studies vary is in it; machine and recipe are in it by name.

        A variant's name is followed by four digits made from its options: two studies may mean different things by it.
        """
        epochs = f"{self.epochs}of{self.of_epochs}" if self.of_epochs else f"{self.epochs}"
        parts = [
            self.machine,
            self.dataset,
            self.model,
            self.recipe.name,
            self.framework + self._variant,
            self.loader,
            *([self.form] if self.form not in (None, self._preferred) else []),
            f"{self.workers}workers",
            *([f"{self.bandwidth_mbit}mbit"] if self.bandwidth_mbit else []),
            f"bs{self.global_batch}",
            self.schedule,
            f"{epochs}epochs",
            f"r{self.repeat}",
        ]
        parts += ["profiled"] if self.profiled else []
        return "-".join(parts + ([f"interrupt{self.interrupt_steps}"] if self.interrupt_steps else []))

    @property
    def _variant(self) -> str:
        return "." + sha256(json.dumps(self.options).encode()).hexdigest()[:4] if self.options else ""

    @property
    def _preferred(self) -> str | None:
        return next(iter(registry.member("loaders", self.loader).FORMS), None)

    @property
    def reads(self) -> str | None:
        """The form that is read; None: the loader reads nothing."""
        return self.form or self._preferred

    @property
    def control(self) -> bool:
        """Whether it is a control run, which says something of drift, and is in no comparison."""
        return self.repeat > CONTROLS

    @property
    def adapter(self) -> str:
        """The member of `frameworks/`."""
        return str(dict(self.options).get("framework", self.framework))

    @property
    def full_epochs(self) -> int:
        """Those that schedules are made for."""
        return self.of_epochs or self.epochs

    def all_options(self) -> dict[str, Any]:
        """The adapter's options with their values in this run."""
        given = {name: value for name, value in self.options if name != "framework"}
        return {**registry.option_defaults(self.adapter), **given}

    def option(self, name: str) -> Any:
        """The value of one of the adapter's options. Raises KeyError on one that it does not have."""
        return self.all_options()[name]

    @property
    def nodes(self) -> int:
        """Nodes that the workers fill, `workers_per_node` on each."""
        return -(-self.workers // self.workers_per_node)

    @property
    def batch_per_worker(self) -> int:
        """Images a step on one rank; the planner has made sure that the ranks divide the batch."""
        return self.global_batch // self.workers

    @property
    def seed(self) -> int:
        """The same for every framework, loader and worker count of a repeat, so that they can be compared."""
        return self.recipe.seed + self.repeat - 1

    def columns(self) -> dict[str, Any]:
        """Flat columns for tables, the same for every run (`COLUMNS`): each field, and each key of the recipe.

        `recipe` is the recipe's name and `seed` this run's own; `options` and `step_epochs` are JSON.
        """
        recipe = vars(self.recipe)
        own = {name: recipe[name] for name in _RECIPE_COLUMNS}
        flat = {name: getattr(self, name) for name in _OWN_COLUMNS}
        flat["options"] = json.dumps(dict(self.options), sort_keys=True)
        flat |= {"of_epochs": self.full_epochs, "form": self.reads, "recipe": self.recipe.name}
        own |= {"step_epochs": json.dumps(self.recipe.step_epochs), "seed": self.seed}
        return {"run": self.id, **flat, **own}

    def to_json(self) -> str:
        """One line; `from_json` gives the same value back. Keys that came later are left out at their default."""
        # Not asdict: it copies deeply, and a plan of thousands of runs would notice.
        return json.dumps({**_written(self), "recipe": _written(self.recipe)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        """The RunSpec that `to_json` of this or an earlier version wrote. Raises ValueError on anything else."""
        data = json.loads(text)
        if not isinstance(data, dict) or not isinstance(data.get("recipe"), dict):
            raise ValueError("these are no settings of a run: no mapping with a recipe in it")
        recipe = data.pop("recipe")
        for part, known in ((data, cls), (recipe, Recipe)):
            if unknown := sorted(part.keys() - {f.name for f in fields(known)}):
                raise ValueError(
                    f"this version of ddlbench does not know the setting {', '.join(unknown)}; "
                    "read the run with the version that made it"
                )
        if "step_epochs" in recipe:
            recipe["step_epochs"] = tuple(recipe["step_epochs"])
        if "options" in data:
            data["options"] = tuple((name, value) for name, value in data["options"])
        try:
            return cls(recipe=Recipe(**recipe), **data)
        except TypeError as error:  # a field without a default is missing
            raise ValueError(f"these are no settings of a run: {error}") from None


# Fields that every record has had. Later ones are written only where they differ from their default: an upgrade must
# leave the JSON text of finished runs as it is, or Snakemake would train them again.
_FIRST = {
    RunSpec: frozenset(
        [
            "machine",
            "device",
            "dataset",
            "model",
            "framework",
            "loader",
            "workers",
            "workers_per_node",
            "loader_threads",
            "global_batch",
            "schedule",
            "epochs",
            "repeat",
            "options",
            "of_epochs",
            "timed",
            "profiled",
            "form",
        ]
    ),
    Recipe: frozenset(
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
    ),
}
_LATER = {
    kind: {f.name: f.default for f in fields(kind) if f.name not in first and f.default is not MISSING}
    for kind, first in _FIRST.items()
}
_OWN_COLUMNS = (*(f.name for f in fields(RunSpec) if f.name != "recipe"), "batch_per_worker", "nodes")
_RECIPE_COLUMNS = tuple(f.name for f in fields(Recipe) if f.name != "name")
COLUMNS = ("run", *_OWN_COLUMNS, "recipe", *_RECIPE_COLUMNS)


def _written(value: RunSpec | Recipe) -> dict[str, Any]:
    """The fields that go into JSON."""
    later = _LATER[type(value)]
    return {name: v for name, v in vars(value).items() if name not in later or v != later[name]}


# Later keys of the recipe that one schedule uses.
_OF_SCHEDULE = {"exponential_start": "exponential", "cosine_moves": "cosine"}


def for_schedule(recipe: Recipe, schedule: str) -> Recipe:
    """The recipe with the keys of other schedules at their default: a change of these makes no run of this one stale.

    That holds for keys which came after the first records; those of before stand in every run's text.
    """
    others = {name: _LATER[Recipe][name] for name, user in _OF_SCHEDULE.items() if user != schedule}
    return replace(recipe, **others)


def complete(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What `to_json` wrote, with the later keys that it left out."""
    recipe = settings.get("recipe")
    whole = {**_LATER[RunSpec], **settings}
    return whole | ({"recipe": {**_LATER[Recipe], **recipe}} if isinstance(recipe, Mapping) else {})


def steps_per_epoch(images: int, global_batch: int) -> int:
    """Steps an epoch: the last batch may be smaller, no sample is dropped or repeated."""
    return -(-images // global_batch)


def needs_whole_layers(optimizer: str) -> bool:
    """Whether it takes norms of whole parameters: then none of its parameters or states may be a piece of flat memory.

    That is how DeepSpeed's ZeRO shards them (stages 1 to 3). FSDP's tensors know what they are a piece of: their norms
    are those of the whole.
    """
    return optimizer in ("lars", "lamb")
