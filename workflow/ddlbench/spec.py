"""What a run is: a frozen value. Its id, folder, command line and table columns all derive from its fields.

A study and a machine become RunSpecs in `plan.py`; `train.py` trains one; `analysis/collect.py` reads its columns.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """Everything that decides accuracy; `config/recipes/<name>.yaml`. Epoch numbers count from 0, fractions allowed."""

    name: str
    optimizer: str
    base_lr: float  # at base_batch images a step; the linear scaling rule does the rest
    base_batch: int
    momentum: float
    nesterov: bool
    weight_decay: float
    warmup_epochs: float
    lr_min: float  # cosine ends here
    step_epochs: tuple[float, ...]  # the step schedule multiplies by step_factor at each
    step_factor: float
    gamma: float  # the exponential schedule multiplies by this each epoch
    label_smoothing: float
    augmentation: str
    image_size: int  # pixels a side
    precision: str
    seed: int


@dataclass(frozen=True)
class RunSpec:
    """One training with all its settings.

    `workers` are ranks, one device each; `global_batch` is images a step over all of them; `repeat` counts from 1 and
    moves the seed. `timed` runs have the machine to themselves; those that are not say nothing about speed.
    `profiled` runs carry a profiler and are never timed.
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
    timed: bool = True
    profiled: bool = False

    @property
    def id(self) -> str:
        """Readable, and its folder's name: what studies vary is in it; machine and recipe are in it by name."""
        parts = [
            self.machine,
            self.dataset,
            self.model,
            self.recipe.name,
            self.framework,
            self.loader,
            f"{self.workers}workers",
            f"bs{self.global_batch}",
            self.schedule,
            f"{self.epochs}epochs",
            f"r{self.repeat}",
        ]
        return "-".join(parts + (["profiled"] if self.profiled else []))

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
        """Flat columns for tables: the recipe by its name, everything else under its own."""
        flat = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "recipe"}
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
        return cls(recipe=Recipe(**recipe), **data)
