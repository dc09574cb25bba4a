"""Runs, and studies that name them: `run_spec(framework="horovod", workers=2)` differs in what is
said.

`pick(plan, workers=2)` is a run that a study names; `write_study` writes and loads a study.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ddlbench.core.spec import RunSpec
from ddlbench.plan.values import Plan
from ddlbench.settings.config import CONFIG
from ddlbench.settings.recipe import load_recipe
from ddlbench.settings.study import Study, load_study
from ddlbench.train.inference import InferSpec

STUDY = """\
title: A study
dataset: mnist5k
recipe: demo
models: [lenet]
schedules: [cosine]
epochs: 2
repeats: 1
runs:
  scaling:
    frameworks: [ddp]
    loaders: [native]
    workers: [1, 2]
    batch_per_worker: [64]
  batch-size:
    frameworks: [ddp]
    loaders: [native]
    workers: [2]
    global_batch: [128]
figures:
  efficiency:
    plot: efficiency
    runs: [scaling]
    reference: aach2023
    select: {loader: native}
"""

RECIPE = """\
base_lr: 0.1
base_batch: 256
momentum: 0.9
weight_decay: 0.0001
warmup_epochs: 1
step_epochs: [1, 2]
image_size: 32
nesterov: false
"""


def run_spec(**settings: Any) -> RunSpec:
    """Two epochs of LeNet under DDP by one worker, in steps of 64 images; `settings` are RunSpec's
    fields.

    `recipe` may be a name: that recipe at the run's global batch. Workers fill one node unless
    `workers_per_node` is given.
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
    given = {
        "run": run_spec(),
        "trained": True,
        "member": "plain",
        "workers": 1,
        "workers_per_node": 1,
    }
    return InferSpec(**given | {"batches": (1, 64), "repeat": 1} | changes)


def pick(of: Plan, **columns: object) -> RunSpec:
    """The first run with these columns."""
    specs = (job.spec for job in of.runs.values())
    return next(s for s in specs if all(getattr(s, k) == v for k, v in columns.items()))


def write_study(folder: Path, text: str | Mapping[str, Any], name: str = "mine") -> Study:
    """A study of this text, or of these keys, in a folder like config/ with our recipes and
    references. Loads it.
    """
    for shared in ("recipes", "references"):
        if not (folder / shared).exists():
            (folder / shared).symlink_to(CONFIG / shared)
    (folder / "studies").mkdir(exist_ok=True)
    text = text if isinstance(text, str) else yaml.safe_dump(text)
    (folder / f"studies/{name}.yaml").write_text(text, encoding="utf-8")
    return load_study(name, folder / "studies")
