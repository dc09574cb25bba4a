"""Study + machine -> runs. Pure: reads nothing but its arguments, and is tested as values.

The Snakefile asks `make_plan` for everything it needs to know; `python -m ddlbench.plan` prints the runs as a table.
"""

from __future__ import annotations

import argparse
import csv
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path

from ddlbench import launch, registry
from ddlbench.config import ConfigError, complain
from ddlbench.machine import Machine, load_machine
from ddlbench.spec import RunSpec
from ddlbench.study import Block, Study, load_study


@dataclass(frozen=True)
class Job:
    """A run and what it asks of the machine: minutes are a first guess for the queue's limit."""

    spec: RunSpec
    minutes: int


@dataclass(frozen=True)
class Plan:
    """All runs of a study on a machine, each once, by id; and which of them each block named."""

    study: Study
    machine: Machine
    jobs: Mapping[str, Job]
    blocks: Mapping[str, tuple[str, ...]]

    def forms(self) -> set[tuple[str, str]]:
        """(data set, form) pairs that the runs read."""
        return {(job.spec.dataset, form_of(job.spec)) for job in self.jobs.values()}


def form_of(spec: RunSpec) -> str:
    """The form that the run's loader reads; runs that read nothing still need the counts in raw's manifest."""
    form: str = registry.member("loaders", spec.loader).FORM
    return form


def make_plan(study: Study, machine: Machine) -> Plan:
    """Every run of the study once. Raises ConfigError if the machine cannot hold one or ranks do not divide a batch."""
    jobs: dict[str, Job] = {}
    blocks: dict[str, tuple[str, ...]] = {}
    for block in study.blocks:
        ids = []
        for spec in _runs(block, study, machine):
            if spec.id in jobs and jobs[spec.id].spec.timed:  # one block that wants its speed is enough
                spec = jobs[spec.id].spec
            jobs[spec.id] = Job(spec, guess_minutes(spec, machine))
            ids.append(spec.id)
        blocks[block.name] = tuple(dict.fromkeys(ids))
    return Plan(study, machine, jobs, blocks)


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
        if block.global_batch and batch % workers:
            raise complain(
                study.path, f"runs.{block.name}.global_batch", batch, f"allowed: multiples of its {workers} workers"
            )
        device = registry.member("loaders", loader).DEVICE
        if device not in (None, machine.device):
            raise complain(
                study.path,
                f"runs.{block.name}.loaders",
                loader,
                f"it needs device {device}; machine {machine.name} has device {machine.device}",
            )
        yield RunSpec(
            machine=machine.name,
            device=machine.device,
            dataset=block.dataset,
            model=model,
            recipe=block.recipe,
            framework=framework,
            loader=loader,
            workers=workers,
            workers_per_node=min(workers, machine.workers_per_node),
            loader_threads=machine.loader_threads,
            global_batch=batch if block.global_batch else batch * workers,
            schedule=schedule,
            epochs=block.epochs,
            repeat=repeat,
            timed=block.timed and not block.profiled,
            profiled=block.profiled,
        )


def guess_minutes(spec: RunSpec, machine: Machine) -> int:
    """Run time limit [min]: 30 min and 1.5 times the ideal time from the machine's `images_per_s`, within the queue's.

    A guess for the queue, not a prediction: a run that hits the limit is submitted again with more (profile: retries).
    """
    rate = dict(machine.images_per_s).get(spec.model)
    partition = machine.partition(spec.nodes)
    longest = partition.max_minutes if partition else 24 * 60
    if rate is None:
        return longest
    images: int = registry.member("datasets", spec.dataset).IMAGES["train"]
    return min(longest, round(30 + 1.5 * spec.epochs * images / (rate * spec.workers) / 60))


def missing_packages(specs: Iterable[RunSpec], machine: Machine) -> list[str]:
    """What the runs import that this Python lacks, a line each: by name, with what installs it.

    Empty on a machine whose software comes from modules: only a job there can tell.
    """
    if machine.modules:
        return []
    members = {("frameworks", s.framework) for s in specs} | {("loaders", s.loader) for s in specs}
    lines = []
    for room, name in sorted(members):
        needs = registry.member(room, name)
        if needs.PACKAGE is not None and not _importable(needs.PACKAGE):
            lines.append(
                f"{room[:-1]} {name} is not installed (no Python package {needs.PACKAGE}); "
                f"install it with: {needs.INSTALL}"
            )
    return lines


def _importable(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def check_installed(plan: Plan, results: Path) -> None:
    """Raises ConfigError if a run without a record needs what is not installed here."""
    todo = [j.spec for i, j in plan.jobs.items() if not (results / "runs" / i / "run.mllog").exists()]
    missing = missing_packages(todo, plan.machine)
    if missing:
        raise ConfigError(f"{plan.study.path}: {'; '.join(missing)}; or leave it out of the study")


def main() -> None:
    """Print the plan as CSV: `python -m ddlbench.plan aach2023 juwels-booster`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("study")
    parser.add_argument("machine")
    arguments = parser.parse_args()
    try:
        plan = make_plan(load_study(arguments.study), load_machine(arguments.machine))
    except ConfigError as error:
        sys.exit(str(error))
    table = csv.writer(sys.stdout)
    table.writerow(("run", "nodes", "tasks", "gpus", "minutes", "command"))
    for run, job in plan.jobs.items():
        gpus = job.spec.workers if job.spec.device == "cuda" else 0
        command = shlex.join(launch.command(job.spec, plan.machine))
        table.writerow((run, job.spec.nodes, job.spec.workers, gpus, job.minutes, command))


if __name__ == "__main__":
    main()
