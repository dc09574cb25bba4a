"""RunSpecs for all tests: `run_spec(framework="horovod", workers=2)` is a small run that differs in what is said.

`pick(plan, workers=2)` is one that a study names.
"""

from dataclasses import replace
from typing import Any

from ddlbench.core.spec import RunSpec
from ddlbench.plan.runs import Plan
from ddlbench.settings.machine import load_machine
from ddlbench.settings.recipe import load_recipe
from ddlbench.train.inference import InferSpec

JUWELS = load_machine("juwels-booster")
LAPTOP = replace(load_machine("local"), workers_per_node=2)  # two workers fit, whatever computer tests this


def run_spec(**settings: Any) -> RunSpec:
    """Two epochs of LeNet under DDP by one worker, in steps of 64 images; `settings` are RunSpec's fields.

    `recipe` may be a name: that recipe at the run's global batch. Workers fill one node unless `workers_per_node` is
    given.
    """
    given: dict[str, Any] = {
        "machine": "here",
        "device": "cpu",
        "dataset": "mnist5k",
        "model": "lenet",
        "recipe": "demo",
        "framework": "ddp",
        "loader": "native",
        "workers": 1,
        "loader_threads": 1,
        "global_batch": 64,
        "schedule": "step",
        "epochs": 2,
        "repeat": 1,
    } | settings
    given.setdefault("workers_per_node", given["workers"])
    if isinstance(given["recipe"], str):
        given["recipe"] = load_recipe(given["recipe"]).at(given["global_batch"])
    return RunSpec(**given)


def infer_spec(**changes: Any) -> InferSpec:
    """The plain LeNet of `run_spec`, trained, serving 1 and 64 pictures."""
    given = {"run": run_spec(), "trained": True, "member": "plain", "workers": 1, "workers_per_node": 1}
    return InferSpec(**given | {"batches": (1, 64), "repeat": 1} | changes)


def pick(of: Plan, **columns: object) -> RunSpec:
    """The first run with these columns."""
    specs = (job.spec for job in of.runs.values())
    return next(s for s in specs if all(getattr(s, k) == v for k, v in columns.items()))
