"""Study + machine -> runs. Pure: reads nothing but its arguments, and is tested as values.

The Snakefile asks `make_plan` for everything it needs to know; `python -m ddlbench.plan` prints the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from ddlbench import layout, registry
from ddlbench.plan import launch
from ddlbench.schedule import warm_up_fault
from ddlbench.settings.config import ConfigError, complain
from ddlbench.settings.machine import Machine
from ddlbench.settings.study import Block, Study
from ddlbench.spec import RunSpec


@dataclass(frozen=True)
class Job:
    """A run, what it reads, and what it asks of the machine (`launch.resources`)."""

    spec: RunSpec
    manifest: str | None  # of the form that it reads
    resources: Mapping[str, str | int | None]  # of its first attempt
    retry: Callable[[int], Mapping[str, str | int | None]]  # of a later one

    def asks(self, attempt: int) -> Mapping[str, str | int | None]:
        """`resources` of the first attempt; each further one asks for that much time again, as far as queues go."""
        return self.resources if attempt == 1 else self.retry(attempt)

    def threads(self, cores: int | None) -> int:
        """Of `cores` on one machine: timed runs have it to themselves, and so have runs on GPUs, which all begin with
        the first one.
        """
        return cores or 1 if self.spec.timed or self.spec.device == "cuda" else self.spec.workers


@dataclass(frozen=True)
class Plan:
    """All runs of a study on a machine, each once, by id; and which of them each block named."""

    study: Study
    machine: Machine
    jobs: Mapping[str, Job]
    blocks: Mapping[str, tuple[str, ...]]


def make_plan(
    study: Study, machine: Machine, account: str | None = None, images: Mapping[str, int] | None = None
) -> Plan:
    """Every run of the study once; `images` are those of training by data set, where its module is not right.

    Raises ConfigError if the machine cannot hold one or ranks do not divide a batch.
    """
    specs: dict[str, RunSpec] = {}
    blocks: dict[str, tuple[str, ...]] = {}
    for block in study.blocks:
        ids = []
        for spec in _runs(block, study, machine):
            run = spec.id
            if run not in specs or spec.timed:  # one block that wants its speed is enough
                specs[run] = spec
            ids.append(run)
        blocks[block.name] = tuple(dict.fromkeys(ids))
    jobs = {run: _job(spec, machine, account, (images or {}).get(spec.dataset)) for run, spec in specs.items()}
    return Plan(study, machine, jobs, blocks)


def _job(spec: RunSpec, machine: Machine, account: str | None, images: int | None) -> Job:
    manifest = f"{machine.data}/{spec.dataset}/{spec.reads}/manifest.json" if spec.reads else None

    def asks(attempt: int) -> dict[str, str | int | None]:
        return launch.resources(spec, machine, guess_minutes(spec, machine, attempt, images), account)

    return Job(spec, manifest, asks(1), asks)


def _runs(block: Block, study: Study, machine: Machine) -> Iterator[RunSpec]:
    axes = product(
        block.models,
        block.frameworks,
        block.loaders,
        block.workers,
        block.batch_per_worker or block.global_batch,
        block.schedules,
        range(1, block.repeats + 1),
    )
    for model, framework, loader, workers, batch, schedule, repeat in axes:
        if workers > machine.workers:
            raise complain(
                study.path,
                f"runs.{block.name}.workers",
                workers,
                f"allowed: at most {machine.workers}, what machine {machine.name} has",
            )
        if workers > machine.workers_per_node and workers % machine.workers_per_node:
            raise complain(
                study.path,
                f"runs.{block.name}.workers",
                workers,
                f"allowed: multiples of {machine.workers_per_node}, a node of machine {machine.name}",
            )
        nodes = -(-workers // machine.workers_per_node)
        if machine.launcher == "slurm" and machine.partition(nodes) is None:
            raise complain(
                study.path,
                f"runs.{block.name}.workers",
                workers,
                f"allowed: what a partition of machine {machine.name} holds; none has {nodes} nodes",
            )
        if block.global_batch and batch % workers:
            raise complain(
                study.path, f"runs.{block.name}.global_batch", batch, f"allowed: multiples of its {workers} workers"
            )
        global_batch = batch if block.global_batch else batch * workers
        recipe = block.recipe.at(global_batch)
        if global_batch % (workers * recipe.accumulation):
            key = "global_batch" if block.global_batch else "batch_per_worker"
            allowed = f"allowed: multiples of {workers} workers x accumulation {recipe.accumulation} of its recipe"
            raise complain(study.path, f"runs.{block.name}.{key}", batch, allowed)
        forms = registry.member("loaders", loader).FORMS
        # One that reads nothing takes part in a comparison of loaders, whatever the form.
        if forms and block.form is not None and block.form not in forms:
            allowed = f"allowed: {', '.join(forms)}, what loader {loader} reads"
            raise complain(study.path, f"runs.{block.name}.form", block.form, allowed)
        if recipe.precision == "tf32" and machine.device != "cuda":
            allowed = f"machine {machine.name} has device {machine.device}; allowed there: fp32, bf16, fp16"
            raise complain(block.recipe.path, "precision", recipe.precision, allowed)
        device = registry.member("loaders", loader).DEVICE
        if device not in (None, machine.device):
            raise complain(
                study.path,
                f"runs.{block.name}.loaders",
                loader,
                f"it needs device {device}; machine {machine.name} has device {machine.device}",
            )
        spec = RunSpec(
            machine=machine.name,
            device=machine.device,
            dataset=block.dataset,
            model=model,
            recipe=recipe,
            framework=framework.name,
            options=framework.options,
            loader=loader,
            workers=workers,
            workers_per_node=min(workers, machine.workers_per_node),
            loader_threads=machine.loader_threads,
            global_batch=global_batch,
            schedule=schedule,
            epochs=block.epochs,
            of_epochs=block.of_epochs,
            repeat=repeat,
            timed=block.timed and not block.profiled,
            profiled=block.profiled,
            form=block.form if block.form in forms[1:] else None,
        )
        reason = registry.member("frameworks", spec.adapter).refuses(spec)
        if reason:
            raise complain(study.path, f"runs.{block.name}.frameworks", framework.name, reason)
        reason = warm_up_fault(spec)
        if reason:
            raise complain(study.path, f"runs.{block.name}.schedules", schedule, reason)
        yield spec


def outputs(plan: Plan) -> list[tuple[str, str]]:
    """(rule, wildcards joined by _) of every job that takes long."""
    forms = {tuple(job.manifest.split("/")[-3:-1]) for job in plan.jobs.values() if job.manifest}
    return [("train", run) for run in plan.jobs] + [("prepare", "_".join(form)) for form in sorted(forms)]


def figure_options(plan: Plan, name: str) -> dict[str, Any]:
    """What a figure is drawn from and with, as plain values: `ddlbench.figures` takes it as JSON."""
    figure = next(f for f in plan.study.figures if f.name == name)
    runs = [run for block in figure.runs for run in plan.blocks[block]]
    return {
        "plot": figure.plot,
        "title": figure.title,
        "runs": list(dict.fromkeys(runs)),
        "select": {column: list(values) for column, values in figure.select},
        "device": plan.machine.device,
        "device_name": plan.machine.device_name,
    }


def guess_minutes(spec: RunSpec, machine: Machine, attempt: int = 1, images: int | None = None) -> int:
    """Run time limit [min]: 30 min and 1.5 times the ideal time from the machine's `images_per_s`, within the queue's.

    A guess for the queue, not a prediction: a run that hits the limit is submitted again (profile: retries), and each
    attempt gets as much again. Without a rate it is all that a queue gives. `estimate.py` predicts. `images` are those
    of an epoch; None: as many as the data set's module says.
    """
    rate = dict(machine.images_per_s).get(spec.model)
    guess = None
    if rate is not None:
        images = images or int(registry.member("datasets", spec.dataset).IMAGES["train"])
        guess = attempt * round(30 + 1.5 * spec.epochs * images / (rate * spec.workers) / 60)
    partition = machine.partition(spec.nodes, guess)
    longest = partition.max_minutes if partition else 24 * 60
    return longest if guess is None else min(longest, guess)


def missing_packages(specs: Sequence[RunSpec], machine: Machine) -> list[str]:
    """What the runs import that this Python lacks, a line each: by name, with what installs it.

    Empty on a machine whose software comes from modules: only a job there can tell.
    """
    if machine.modules:
        return []
    members = {("frameworks", s.adapter) for s in specs} | {("loaders", s.loader) for s in specs}
    lines = []
    for room, name in sorted(members):
        needs = registry.member(room, name)
        if needs.PACKAGE is not None and not registry.importable(needs.PACKAGE):
            lines.append(
                f"{room[:-1]} {name} is not installed (no Python package {needs.PACKAGE}); "
                f"install it with: {needs.INSTALL}"
            )
    return lines


def check_installed(plan: Plan, results: Path) -> None:
    """Raises ConfigError if a run without a record needs what is not installed here."""
    todo = [j.spec for i, j in plan.jobs.items() if not Path(layout.run_log(i, results)).exists()]
    missing = missing_packages(todo, plan.machine)
    if missing:
        raise ConfigError(f"{plan.study.path}: {'; '.join(missing)}; or leave it out of the study")
