"""Study + machine -> jobs of inference: the models of a block's runs, served in each way. Pure, as `runs.py` is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Protocol

from ddlbench.core import layout, registry
from ddlbench.core.spec import RunSpec
from ddlbench.data import datasets
from ddlbench.plan import first_guess, launch
from ddlbench.settings.config import complain
from ddlbench.settings.machine import Machine
from ddlbench.settings.study import Study
from ddlbench.settings.study_keys import Inference
from ddlbench.train.inference import InferSpec
from ddlbench.train.inference._measure import requests

PROGRAM = ("python", "-m", "ddlbench.train.inference")
# A forward pass is a third of a training step: the backward pass computes two gradients for each product.
FORWARD = 1 / 3
# The framework whose rank 0 has all weights at the end, as plain tensors.
TRAINED_BY = "ddp"
PRECISIONS = ("fp32", "tf32", "bf16")  # in which models can serve; nobody has tried fp16

Resources = Mapping[str, str | int | None]


class Trained(Protocol):
    """A planned run (`runs.PlannedRun`)."""

    @property
    def spec(self) -> RunSpec: ...
    @property
    def manifest(self) -> str | None: ...


@dataclass(frozen=True)
class PlannedInference:
    """A job, the form that it reads, the log of the run whose weights it takes (None: initial ones), what it asks."""

    spec: InferSpec
    manifest: str
    trained: str | None
    asks: Callable[[int], Resources]  # of an attempt, counted from 1

    @property
    def resources(self) -> Resources:
        """Gives what its first attempt asks for."""
        return self.asks(1)


def jobs(
    study: Study, machine: Machine, block: Iterable[Trained], account: str | None = None
) -> dict[str, PlannedInference]:
    """Every job of the study's key `inference` by id; `block` are the runs of the block that it names.

    Raises ConfigError if the block has no run to take a model from, or the machine cannot hold a job.
    """
    wanted = study.inference
    if wanted is None:
        return {}
    _check_workers(study, wanted, machine)
    made = {}
    models = _models(study, wanted, block)
    for run, member, repeat in product(models, wanted.members, range(1, wanted.repeats + 1)):
        splits = registry.member("inference", member).SPLITS
        for workers in wanted.workers if splits else (1,):
            spec = InferSpec(
                run=run.spec,
                trained=wanted.trained,
                member=member,
                workers=workers,
                workers_per_node=min(workers, machine.workers_per_node),
                batches=tuple(sorted(wanted.batches)),
                repeat=repeat,
            )
            made[spec.id] = _planned(spec, run.manifest or "", machine, account)
    return made


def work_s(spec: InferSpec, rate: float) -> float:
    """About how long a job serves [s], where a worker trains so many images per second: its requests, and all
    validation pictures twice. A guess: no way to serve is faster in it than another, nor several workers than one.
    """
    one_s = FORWARD / rate
    # Three requests of each batch size come before those that are counted (`_measure.latencies`).
    sent = sum((requests(batch * one_s) + 3) * batch for batch in spec.batches)
    return one_s * (sent + 2 * datasets.of(spec.run.dataset).IMAGES["val"])


def guess_minutes(spec: InferSpec, machine: Machine, attempt: int = 1) -> int:
    """Run time limit [min] (`first_guess.limit_minutes`): half an hour to begin and to compile, 1.5 times `work_s`."""
    model = (spec.run.model, spec.run.recipe.image_size)
    return first_guess.limit_minutes(model, machine, spec.nodes, attempt, lambda rate: work_s(spec, rate), 1.5)


def _planned(spec: InferSpec, manifest: str, machine: Machine, account: str | None) -> PlannedInference:
    def asks(attempt: int) -> Resources:
        return launch.resources(spec, machine, guess_minutes(spec, machine, attempt), account, PROGRAM)

    return PlannedInference(spec, manifest, layout.run_log(spec.run.id) if spec.trained else None, asks)


def _models(study: Study, wanted: Inference, block: Iterable[Trained]) -> list[Trained]:
    """One run for each model and recipe of the block: of those under TRAINED_BY that learn, that of the fewest workers,
    the first repeat of it. Raises ConfigError without any."""
    learn = [
        run
        for run in block
        if run.spec.adapter == TRAINED_BY and run.manifest and registry.member("loaders", run.spec.loader).LEARNS
    ]
    learn.sort(key=lambda run: (run.spec.workers, run.spec.repeat))
    chosen: dict[tuple[str, str], Trained] = {}
    for run in learn:
        chosen.setdefault((run.spec.model, run.spec.recipe.name), run)
    if not chosen:
        allowed = f"allowed: a block with framework {TRAINED_BY} and a loader that reads pictures"
        raise complain(study.path, "inference.runs", wanted.runs, allowed)
    for run in chosen.values():
        if run.spec.recipe.precision not in PRECISIONS:
            said = f"its recipe {run.spec.recipe.name} has precision {run.spec.recipe.precision}"
            raise complain(study.path, "inference.runs", wanted.runs, f"{said}; allowed: {', '.join(PRECISIONS)}")
    return list(chosen.values())


def _check_workers(study: Study, wanted: Inference, machine: Machine) -> None:
    """Raises ConfigError if a model would be split over more workers than there are, or over parts of nodes."""
    if not any(registry.member("inference", member).SPLITS for member in wanted.members):
        return
    for workers in wanted.workers:
        if workers > machine.workers:
            allowed = f"allowed: at most {machine.workers}, what machine {machine.name} has"
            raise complain(study.path, "inference.workers", workers, allowed)
        if workers > machine.workers_per_node and workers % machine.workers_per_node:
            allowed = f"allowed: up to {machine.workers_per_node}, or full nodes of so many"
            raise complain(study.path, "inference.workers", workers, allowed)
