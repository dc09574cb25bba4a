"""What one job of inference is: a frozen value, as `RunSpec` is for training. Its id is its
folder's name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any

from ddlbench.core import registry
from ddlbench.core.spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class InferSpec:
    """A model that serves requests, in one way, with batches of several sizes.

    `run` is the training whose model, recipe, pictures, seed and machine are meant. `trained`: the
    weights are those at its end; otherwise those with which it began, made from its seed. `member`
    is a way to serve, a file of this room. `workers` are ranks, one device each; `batches` are
    images in one request, ascending; `repeat` counts processes that do the same, from 1.
    """

    run: RunSpec
    trained: bool
    member: str
    workers: int
    workers_per_node: int
    batches: tuple[int, ...]
    repeat: int

    @property
    def id(self) -> str:
        """Return a readable id. Four hex digits stand for what is not in it: the rest of the
        training, and the batch sizes.
        """
        rest = json.dumps([self.run.to_json(), self.batches])
        weights = "trained" if self.trained else "initial"
        parts = [
            self.run.machine,
            self.run.dataset,
            self.run.model_name,
            self.run.recipe.name,
            f"{weights}.{sha256(rest.encode()).hexdigest()[:4]}",
            self.member,
            f"{self.workers}workers",
            f"r{self.repeat}",
        ]
        return "-".join(parts)

    # The values that `plan/launch.py` needs of each job that it starts.

    @property
    def adapter(self) -> str:
        """Return the framework whose variables the ranks get."""
        return str(registry.member("inference", self.member).FRAMEWORK)

    @property
    def nodes(self) -> int:
        """Return the number of nodes that the workers fill."""
        return -(-self.workers // self.workers_per_node)

    @property
    def timed(self) -> bool:
        """Return True: nothing else may run at the same time."""
        return True

    @property
    def profiled(self) -> bool:
        """Return False: no profiler runs with it."""
        return False

    @property
    def bandwidth_mbit(self) -> int | None:
        """Return the bandwidth between the run's ranks, if its machine limits it."""
        return self.run.bandwidth_mbit

    def to_json(self) -> str:
        """Return the settings on one line; the same text for the same job.

        Rule `infer` compares it.
        """
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "run"}
        return json.dumps({**settings, "run": json.loads(self.run.to_json())}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> InferSpec:
        """Parse what `to_json` wrote. Raises ValueError for anything else."""
        data: Any = json.loads(text)
        if not isinstance(data, dict) or not isinstance(data.get("run"), dict):
            raise ValueError(
                "these are not the settings of inference; expected: a mapping with a run"
            )
        run = RunSpec.from_json(json.dumps(data.pop("run")))
        try:
            return cls(run=run, **data | {"batches": tuple(data.get("batches", ()))})
        except TypeError as error:
            raise ValueError(f"these are not the settings of inference: {error}") from None
