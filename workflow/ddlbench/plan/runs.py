"""Study + machine -> runs. Pure: reads nothing but its arguments, and is tested as values.

The Snakefile asks `make_plan` for everything it needs to know; `ddlbench plan` counts the runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import product
from math import prod
from typing import NamedTuple

from ddlbench.core import registry
from ddlbench.core.recipe import for_schedule
from ddlbench.core.roles import STRONG, WEAK
from ddlbench.core.spec import RunSpec
from ddlbench.data import datasets
from ddlbench.plan import first_guess, fits, infer, launch, order
from ddlbench.plan.stale import changes
from ddlbench.records._planned import digest
from ddlbench.settings.config import ConfigError, complain
from ddlbench.settings.machine import Machine
from ddlbench.settings.study import Block, Study

MOST_RUNS = 20_000  # of a block; the paper's whole study has 414


@dataclass(frozen=True)
class PlannedRun:
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
    """All runs of a study on a machine, each once, by id; and which of them each block named.

    `order` are all ids in the order in which they are to be made, control runs among them. `left_out` are numbers of
    workers that the machine does not have, and that the study does not insist on. `inferences` are the jobs that ask
    runs' models, by id.
    """

    study: Study
    machine: Machine
    runs: Mapping[str, PlannedRun]
    blocks: Mapping[str, tuple[str, ...]]
    left_out: tuple[int, ...]
    order: tuple[str, ...] = ()
    inferences: Mapping[str, infer.PlannedInference] = field(default_factory=dict)

    @cached_property
    def places(self) -> dict[str, int]:
        """Each run's place in the order, counted from 1."""
        return {run: place for place, run in enumerate(self.order, start=1)}


def make_plan(
    study: Study, machine: Machine, account: str | None = None, images: Mapping[str, int] | None = None
) -> Plan:
    """Every run of the study once; `images` are those of training by data set, where its module is not right.

    Raises ConfigError if the machine cannot hold a run, ranks do not divide a batch, or two runs would have one id.
    """
    _check_size(study)
    specs: dict[str, RunSpec] = {}
    blocks: dict[str, tuple[str, ...]] = {}
    left_out: set[int] = set()
    for block in study.blocks:
        if block.fit:
            left_out |= {workers for workers in block.workers if workers > machine.workers}
        ids = []
        for spec in _runs(block, study, machine):
            run = spec.id
            known = specs.setdefault(run, spec)
            if known != replace(spec, timed=known.timed):
                raise _same_id(study, block, known, spec)
            if spec.timed:  # one block that wants its speed is enough
                specs[run] = spec
            ids.append(run)
        blocks[block.name] = tuple(dict.fromkeys(ids))
    if not study.records:
        _check_figures(study, machine, blocks)
    ordered = order.mixed(study.name, specs.values())
    if study.control:
        cell = [specs[run] for run in blocks[study.control.runs]]
        ordered = order.with_controls(study, ordered, cell)
        controls = {spec.id: spec for spec in ordered if spec.control}
        specs, blocks[order.BLOCK] = specs | controls, tuple(controls)
    made = {run: _planned(spec, machine, account, (images or {}).get(spec.dataset)) for run, spec in specs.items()}
    asked = [made[run] for run in blocks[study.inference.runs]] if study.inference else []
    inferences = infer.jobs(study, machine, asked, account)
    places = tuple(spec.id for spec in ordered)
    return Plan(study, machine, made, blocks, tuple(sorted(left_out)), places, inferences)


def _check_size(study: Study) -> None:
    """Raises ConfigError if a block names more runs than anybody wants: each takes memory and Snakemake's time."""
    for block in study.blocks:
        axes = (block.models, block.adapters, block.loaders, block.workers, block.schedules)
        further = (block.batch_per_worker or block.global_batch, block.bandwidths_mbit or (None,))
        named = block.repeats * prod(map(len, (*axes, *further)))
        if named > MOST_RUNS:
            raise complain(study.path, f"runs.{block.name}", named, f"allowed: at most {MOST_RUNS} runs in a block")


def _same_id(study: Study, block: Block, known: RunSpec, spec: RunSpec) -> ConfigError:
    differ = "; ".join(changes(json.loads(known.to_json()), json.loads(spec.to_json())))
    return ConfigError(
        f"{study.path}: runs.{block.name}: two different runs would have the same id, {spec.id} ({differ}): give a "
        "recipe or a variant another name"
    )


def _check_figures(study: Study, machine: Machine, blocks: Mapping[str, Sequence[str]]) -> None:
    """Raises ConfigError if nothing is left of the study, or of a figure, on this machine."""
    shown = {"runs": tuple(blocks), **{f"figures.{figure.name}.runs": figure.runs for figure in study.figures}}
    for key, names in shown.items():
        if not any(blocks[name] for name in names):
            allowed = f"machine {machine.name} has {machine.workers} workers, fewer than any of its runs needs"
            raise complain(study.path, key, list(names), allowed)
    for figure in study.figures:
        if is_of_inference(figure.plot) and study.inference is None:
            allowed = "the study has no key inference, whose jobs it shows; allowed: any other plot"
            raise complain(study.path, f"figures.{figure.name}.plot", figure.plot, allowed)


def _planned(spec: RunSpec, machine: Machine, account: str | None, images: int | None) -> PlannedRun:
    # How many pictures and classes a set of the user's has, only its manifest says, also to who reads nothing else.
    form = spec.reads or (None if spec.dataset in registry.members("datasets") else "raw")
    manifest = f"{machine.data}/{spec.dataset}/{form}/manifest.json" if form else None

    def asks(attempt: int) -> dict[str, str | int | None]:
        return launch.resources(spec, machine, guess_minutes(spec, machine, attempt, images), account)

    return PlannedRun(spec, manifest, asks(1), asks)


def _runs(block: Block, study: Study, machine: Machine) -> Iterator[RunSpec]:
    axes = product(
        block.models,
        block.adapters,
        block.loaders,
        [workers for workers in block.workers if workers <= machine.workers or not block.fit],
        block.batch_per_worker or block.global_batch,
        block.bandwidths_mbit or (None,),
        block.schedules,
        range(1, block.repeats + 1),
    )
    for model, framework, loader, workers, batch, bandwidth_mbit, schedule, repeat in axes:
        fits.check(study, block, machine, loader, workers, batch)
        global_batch = batch if block.global_batch else batch * workers
        forms = registry.member("loaders", loader).FORMS
        spec = RunSpec(
            machine=machine.name,
            device=machine.device,
            dataset=block.dataset,
            model=model,
            recipe=for_schedule(block.recipe_file.at(global_batch), schedule),
            framework=framework.name,
            options=framework.options,
            loader=loader,
            workers=workers,
            workers_per_node=min(workers, machine.workers_per_node),
            loader_threads=machine.loader_threads,
            global_batch=global_batch,
            schedule=schedule,
            epochs=block.trained_epochs,
            of_epochs=block.measure.of if block.measure else None,
            repeat=repeat,
            timed=block.timed and not block.profiled,
            profiled=block.profiled,
            form=block.form if block.form in forms[1:] else None,
            bandwidth_mbit=bandwidth_mbit,
            interrupt_steps=block.interrupt.steps if block.interrupt else None,
            model_sha256=block.sources.get(model),
        )
        fits.check_run(study, block, machine, spec)
        yield spec


def outputs(plan: Plan) -> list[tuple[str, str]]:
    """(rule, wildcards joined by _) of every job that takes long."""
    forms = {tuple(run.manifest.split("/")[-3:-1]) for run in plan.runs.values() if run.manifest}
    long = [("train", run) for run in plan.runs] + [("prepare", "_".join(form)) for form in sorted(forms)]
    return long + [("infer", job) for job in plan.inferences]


def digests(plan: Plan) -> dict[str, str]:
    """Digests each run's settings, by run: `collect` refuses records of others."""
    return {run: digest(json.loads(job.spec.to_json())) for run, job in plan.runs.items()}


def scaling(plan: Plan) -> dict[str, str]:
    """Which kind of series a run is in, by the batch that its blocks give: WEAK or STRONG. Runs of a block with one
    worker count, and those of blocks that say both, are left out."""
    kinds: dict[str, set[str]] = {}
    for block in plan.study.blocks:
        ids = plan.blocks[block.name]
        if len({plan.runs[run].spec.workers for run in ids}) > 1:
            for run in ids:
                kinds.setdefault(run, set()).add(STRONG if block.global_batch else WEAK)
    return {run: kind for run, (kind, *other) in kinds.items() if not other}


def figure_runs(plan: Plan, name: str) -> list[str] | None:
    """The ids of the runs that a figure shows: those of its blocks whose columns have one of the selected values.

    None for a study of others' records: which runs there are, only its tables say. Of a figure of inference, its jobs.
    """
    figure = next(f for f in plan.study.figures if f.name == name)
    if plan.study.records:
        return None
    if is_of_inference(figure.plot):
        return list(plan.inferences)
    runs = dict.fromkeys(run for block in figure.runs for run in plan.blocks[block])
    if not figure.select:
        return list(runs)
    columns = {run: plan.runs[run].spec.columns() for run in runs}
    return [run for run in runs if all(columns[run][column] in values for column, values in figure.select)]


class Part(NamedTuple):
    """Runs (ids) that the same figures (names) show."""

    figures: tuple[str, ...]
    runs: list[str]


def parts(plan: Plan) -> dict[str, Part]:
    """All runs of the plan, by which figures show them. A part keeps its name when runs come or go."""
    showing: dict[str, tuple[str, ...]] = dict.fromkeys(plan.runs, ())
    for figure in plan.study.figures:
        for run in figure_runs(plan, figure.name) or ():
            if run in showing:  # else a job of inference
                showing[run] += (figure.name,)
    made: dict[tuple[str, ...], list[str]] = {}
    for run, figures in showing.items():
        made.setdefault(figures, []).append(run)
    return {sha256("/".join(figures).encode()).hexdigest()[:8]: Part(figures, ids) for figures, ids in made.items()}


def is_of_inference(plot: str) -> bool:
    """Whether a plot shows jobs of inference, and no runs."""
    return "inference" in registry.constant("figures", plot, "TABLES")


def figure_options(plan: Plan, name: str) -> str:
    """What a figure is drawn with beside its data: the fields of `figures.Options` as JSON.

    Snakemake writes it into its report, between script tags that nothing in it may close: `<` is written as JSON may.
    """
    figure = next(f for f in plan.study.figures if f.name == name)
    options = {
        "title": figure.title,
        "device": device(plan),
        "device_name": plan.machine.device_name,
        "frameworks": sorted(
            {plan.runs[run].spec.framework for run in figure_runs(plan, name) or () if run in plan.runs}
        ),
        "basis": figure.basis,
        "target": figure.target,
    }
    return json.dumps(options).replace("<", "\\u003c")


def device(plan: Plan) -> str:
    """What a worker's device is: the machine's, or `accelerator` in records of others."""
    return "accelerator" if plan.study.records else plan.machine.device


def guess_minutes(spec: RunSpec, machine: Machine, attempt: int = 1, images: int | None = None) -> int:
    """Run time limit [min] (`first_guess.limit_minutes`). A guess for queues: `estimate.py` predicts.

    `images` are those of an epoch; None: as many as the data set's module says.
    """
    images = images or datasets.of(spec.dataset).IMAGES["train"]
    model, work = (spec.model, spec.recipe.image_size), spec.epochs * images
    return first_guess.limit_minutes(model, machine, spec.nodes, attempt, lambda rate: work / (rate * spec.workers))
