"""What a run is: a frozen value. Its id, folder, command line and table columns all derive from its fields.

A study and a machine become RunSpecs in `plan/runs.py`; `train.py` trains one; `analysis/collect.py` reads its columns.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from typing import Any

from ddlbench import registry


@dataclass(frozen=True)
class Recipe:
    """Everything that decides accuracy; `config/recipes/<name>.yaml`. Epoch numbers count from 0, fractions allowed."""

    name: str
    optimizer: str
    base_lr: float  # at base_batch images a step; lr_scaling does the rest
    base_batch: int
    lr_scaling: str
    momentum: float  # of sgd and lars
    nesterov: bool
    beta1: float  # of adamw and lamb
    beta2: float
    trust_coefficient: float  # of lars
    weight_decay: float
    decay_norm_and_bias: bool
    clip_norm: float | None  # gradients are scaled to at most this norm
    warmup_epochs: float
    warmup_lr: float | None  # where warm-up begins; None: base_lr
    lr_min: float  # cosine and polynomial end here
    step_epochs: tuple[float, ...]  # the step schedule multiplies by step_factor at each
    step_factor: float
    gamma: float  # the exponential schedule multiplies by this each epoch
    power: float  # of the polynomial schedule
    decay_epochs: float | None  # how long polynomial falls after warm-up; None: to the end
    label_smoothing: float
    augmentation: str
    image_size: int  # pixels a side
    precision: str
    accumulation: int  # parts that each rank's share of a step is computed in
    sync_batch_norm: bool
    seed: int


@dataclass(frozen=True)
class RunSpec:
    """One training with all its settings.

    `framework` is its name in the study: a member of `frameworks/`, or a variant, whose `options` name the member and
    its settings, sorted. `workers` are ranks, one device each; `global_batch` is images a step over all of them;
    `repeat` counts from 1 and moves the seed. Where throughput is measured and the rest extrapolated, `epochs` are
    trained of a run of `of_epochs`. `timed` runs have the machine to themselves; those
    that are not say nothing about speed. `profiled` runs carry a profiler and are never timed.
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
            f"bs{self.global_batch}",
            self.schedule,
            f"{epochs}epochs",
            f"r{self.repeat}",
        ]
        return "-".join(parts + (["profiled"] if self.profiled else []))

    @property
    def _variant(self) -> str:
        return "." + hashlib.sha256(json.dumps(self.options).encode()).hexdigest()[:4] if self.options else ""

    @property
    def _preferred(self) -> str | None:
        return next(iter(registry.member("loaders", self.loader).FORMS), None)

    @property
    def reads(self) -> str | None:
        """The form that is read; None: the loader reads nothing."""
        return self.form or self._preferred

    @property
    def adapter(self) -> str:
        """The member of `frameworks/`."""
        return str(dict(self.options).get("framework", self.framework))

    @property
    def full_epochs(self) -> int:
        """Those that schedules are made for."""
        return self.of_epochs or self.epochs

    def option(self, name: str) -> Any:
        """The value of one of the adapter's options. Raises KeyError on one that it does not have."""
        return {**registry.option_defaults(self.adapter), **dict(self.options)}[name]

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
        """Flat columns for tables: the recipe by its name, options as JSON, everything else under its own."""
        flat = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "recipe"}
        flat["of_epochs"] = self.full_epochs
        flat["form"] = self.reads
        flat["options"] = json.dumps(dict(self.options), sort_keys=True)
        return {"run": self.id, **flat, "recipe": self.recipe.name, "nodes": self.nodes}

    def to_json(self) -> str:
        """One line; `from_json` gives the same value back."""
        # Not asdict: it copies deeply, and a plan of thousands of runs would notice.
        return json.dumps({**vars(self), "recipe": vars(self.recipe)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        """The RunSpec that `to_json` wrote. Raises TypeError on fields that this version does not know."""
        data = json.loads(text)
        recipe = data.pop("recipe")
        recipe["step_epochs"] = tuple(recipe["step_epochs"])
        data["options"] = tuple((name, value) for name, value in data.get("options", ()))
        return cls(recipe=Recipe(**recipe), **data)


def steps_per_epoch(images: int, global_batch: int) -> int:
    """Steps an epoch: the last batch may be smaller, no sample is dropped or repeated."""
    return -(-images // global_batch)


def needs_whole_layers(optimizer: str) -> bool:
    """Whether it takes norms of whole parameters: then none of its parameters or states may be a piece of flat memory.

    That is how DeepSpeed's ZeRO shards them (stages 1 to 3). FSDP's tensors know what they are a piece of: their norms
    are those of the whole.
    """
    return optimizer in ("lars", "lamb")
