"""Study + machine -> runs. Pure: reads nothing but its arguments, and is tested as values.

The Snakefile asks `make_plan` for everything it needs to know; `ddlbench plan` counts the runs.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from hashlib import sha256
from math import prod
from typing import NamedTuple

from ddlbench.core import kinds, registry
from ddlbench.core.formatting import count_of
from ddlbench.core.program import IMAGES
from ddlbench.core.registry import OWN
from ddlbench.core.spec import RunSpec
from ddlbench.plan.kinds import PlanBasis
from ddlbench.plan.stale import changes
from ddlbench.plan.values import Plan
from ddlbench.settings.config import ConfigError, complain
from ddlbench.settings.machine import Machine
from ddlbench.settings.study import Study

MOST_RUNS = 20_000  # of a block; the paper's whole study has 414


def make_plan(
    study: Study,
    machine: Machine,
    account: str | None = None,
    images: Mapping[str, int] | None = None,
    more: Collection[str] | None = (),
    only: Collection[str] | None = None,
    was_timed: Callable[[RunSpec], bool] = lambda spec: spec.timed,
) -> Plan:
    """Every run of the study once; `images` are those of training by data set, where its module is
    not right. Of the repeats that a study may make until it is decided those named by `more` (ids);
    None: all of them. `only` are the runs that the plan is to have jobs of, for a process that
    makes these (ids); None: of all. A run whose record `was_timed` is planned so: two studies share
    it. Raises ConfigError if the machine cannot hold a run, ranks do not divide a batch, or two
    runs would have one id.
    """
    _check_size(study)
    specs: dict[str, RunSpec] = {}
    blocks: dict[str, tuple[str, ...]] = {}
    left_out: set[int] = set()
    for block in study.blocks:
        if block.fit:
            left_out |= {workers for workers in block.workers if workers > machine.workers}
        ids = []
        widest = replace(block, repeats=block.repeats + block.further)
        for spec in (spec for kind in kinds.every() for spec in kind.runs(study, machine, widest)):
            run = spec.id
            if spec.repeat > block.repeats and more is not None and run not in more:
                continue
            before = specs.setdefault(run, spec)
            if before is not spec and before != replace(spec, timed=before.timed):
                differ = "; ".join(
                    changes(json.loads(before.to_json()), json.loads(spec.to_json()))
                )
                wrong = f"two different runs would have the same id, {run} ({differ})"
                raise ConfigError(
                    f"{study.path}: runs.{block.name}: {wrong}: give a recipe or a variant another"
                    " name"
                )
            if spec.timed:  # one block that wants its speed is enough
                specs[run] = spec
            elif before is spec and was_timed(spec):
                specs[run] = replace(spec, timed=True)
            ids.append(run)
        blocks[block.name] = tuple(dict.fromkeys(ids))
    if not study.records:
        _check_figures(study, machine, blocks)
    minutes = _minutes(study, machine, specs, blocks)
    basis = PlanBasis(study, machine, account, images or {}, specs, blocks, minutes, only)
    jobs = {name: job for kind in kinds.every() for name, job in kind.jobs(basis).items()}
    non_training = {name: job for name, job in jobs.items() if not kinds.trains(job.rule)}
    runs = {run: jobs[run] for run in specs if basis.has_job(run)}
    places = tuple(spec.id for spec in in_random_order(study.name, [specs[run] for run in runs]))
    if only is not None:
        blocks = {name: tuple(run for run in ids if run in runs) for name, ids in blocks.items()}
    return Plan(study, machine, runs, blocks, tuple(sorted(left_out)), places, non_training)


def _minutes(
    study: Study,
    machine: Machine,
    specs: Mapping[str, RunSpec],
    blocks: Mapping[str, Sequence[str]],
) -> dict[str, int]:
    """Return the time limits that blocks, or files of programs, give to runs [min], by run: of
    several the longest. Raises ConfigError for one that no queue gives.
    """
    said: dict[str, int] = {}
    for block in study.blocks:
        files = {file.name: file for file in block.program_files}
        for run in blocks[block.name]:
            spec = specs[run]
            path, key, minutes = study.path, f"runs.{block.name}.minutes", block.minutes
            if minutes is None and spec.program:
                path, key, minutes = (
                    files[spec.program.name].path,
                    "minutes",
                    files[spec.program.name].minutes,
                )
            if minutes is None:
                continue
            longest = machine.limit_minutes(spec.nodes)
            if machine.launcher == "slurm" and minutes > longest:
                most = (
                    f"the most that a partition of machine {machine.name} allows for"
                    f" {count_of(spec.nodes, 'node')}"
                )
                raise complain(path, key, minutes, f"allowed: at most {longest}, {most}")
            said[run] = max(minutes, said.get(run, 0))
    return said


def _check_size(study: Study) -> None:
    """Raise ConfigError if a block names more runs than anybody wants: each takes memory and
    Snakemake's time.
    """
    for block in study.blocks:
        axes: list[Sized] = [
            block.workers,
            block.batch_per_worker or block.global_batch,
            block.bandwidths_mbit or " ",
        ]
        ours = block.programs is None
        axes += (
            [block.models, block.adapters, block.loaders, block.schedules]
            if ours
            else [block.own_programs]
        )
        named = (block.repeats + block.further) * prod(map(len, axes))
        if named > MOST_RUNS:
            raise complain(
                study.path,
                f"runs.{block.name}",
                named,
                f"allowed: at most {MOST_RUNS} runs in a block",
            )


def _check_figures(study: Study, machine: Machine, blocks: Mapping[str, Sequence[str]]) -> None:
    """Raise ConfigError if nothing is left of the study, or of a figure, on this machine."""
    shown = {
        "runs": tuple(blocks),
        **{f"figures.{figure.name}.runs": figure.runs for figure in study.figures},
    }
    for key, names in shown.items():
        if not any(blocks[name] for name in names):
            allowed = (
                f"machine {machine.name} has {machine.workers} workers, fewer than any of its runs"
                " needs"
            )
            raise complain(study.path, key, list(names), allowed)
    for figure in study.figures:
        for key in non_training_tables(figure.plot):
            if getattr(study, key) is None:
                allowed = (
                    f"the study has no key {key}, whose jobs it shows; allowed: any other plot"
                )
                raise complain(study.path, f"figures.{figure.name}.plot", figure.plot, allowed)


def outputs(plan: Plan) -> list[tuple[str, str]]:
    """Return (rule, wildcards joined by _) of every job that takes long."""
    forms = {tuple(run.manifest.split("/")[-3:-1]) for run in plan.runs.values() if run.manifest}
    long = [(job.rule, name) for name, job in plan.jobs.items()]
    return long + [("prepare", "_".join(form)) for form in sorted(forms)]


def figure_runs(plan: Plan, name: str) -> list[str] | None:
    """Return the ids of the runs that a figure shows: those of its blocks whose columns have one of
    the selected values.

    For a figure of jobs that do not train, return these jobs. None for a study of others' records:
    only its tables say which runs there are.
    """
    figure = next(f for f in plan.study.figures if f.name == name)
    if plan.study.records:
        return None
    if keys := non_training_tables(figure.plot):
        return [
            name
            for name, job in plan.non_training.items()
            if registry.member("kinds", job.kind).RULE.table in keys
        ]
    runs = dict.fromkeys(run for block in figure.runs for run in plan.blocks[block])
    if not figure.select:
        return list(runs)
    return [
        run
        for run in runs
        if all(plan.columns[run][column] in values for column, values in figure.select)
    ]


class Parts(NamedTuple):
    """The sets of runs (ids) by name; the names of those that are whole blocks, and of those of
    each figure by its name.
    """

    runs: dict[str, list[str]]
    whole: list[str]
    of_figure: dict[str, list[str]]


def parts(plan: Plan) -> Parts:
    """Return the runs of each block, and those of them that a figure selects.

    A set is named after its runs: another figure or block, or a block's new name, changes no set of
    the others.
    """
    names: dict[str, list[str]] = {}

    def named(ids: Collection[str]) -> str:
        name = sha256("/".join(sorted(ids)).encode()).hexdigest()[:8]
        names.setdefault(name, [*ids])
        return name

    of_block = {block: named(ids) for block, ids in plan.blocks.items() if ids}
    of_figure: dict[str, list[str]] = {}
    for figure in plan.study.figures:
        runs, blocks = (
            figure_runs(plan, figure.name),
            [block for block in figure.runs if block in of_block],
        )
        if runs is None or non_training_tables(figure.plot):  # tables have what it shows
            of_figure[figure.name] = []
        elif figure.select:
            chosen = {*runs}
            selected = [[run for run in plan.blocks[block] if run in chosen] for block in blocks]
            of_figure[figure.name] = [*dict.fromkeys(named(ids) for ids in selected if ids)]
        else:
            of_figure[figure.name] = [*dict.fromkeys(of_block[block] for block in blocks)]
    return Parts(names, [*dict.fromkeys(of_block.values())], of_figure)


def non_training_tables(plot: str) -> list[str]:
    """Return the study's keys that define the jobs that a plot shows in place of runs; none if the plot
    shows runs.
    """
    tables = registry.constant("figures", plot, "TABLES")
    return [rule.table for rule in kinds.non_training() if rule.table in tables]


def of_figure(plan: Plan, name: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return those of the values by run that belong to a figure's runs."""
    return {run: values[run] for run in figure_runs(plan, name) or () if run in values}


def figure_options(plan: Plan, name: str) -> str:
    """Return what a figure is drawn with beside its data: the fields of `figures.Options` as JSON.

    Snakemake writes it into its report, between script tags that nothing in it may close: `<` is
    written as JSON may.
    """
    figure = next(f for f in plan.study.figures if f.name == name)
    specs = [plan.runs[run].spec for run in figure_runs(plan, name) or () if run in plan.runs]
    samples = {spec.sample for spec in specs} or {IMAGES}
    options = {
        "title": figure.title,
        "device": device(plan),
        "device_name": plan.machine.device_name,
        "frameworks": sorted({spec.framework for spec in specs}),
        "sample": samples.pop() if len(samples) == 1 else "samples",
        "basis": figure.basis,
        "target": figure.target,
        "about": ", ".join(_footer(plan, specs)),
    }
    return json.dumps(options).replace("<", "\\u003c")


def _footer(plan: Plan, specs: Sequence[RunSpec]) -> Iterator[str]:
    """Yield what stands below a picture, so that it can be identified on a slide: study, machine,
    and what all of its runs have in common.
    """
    yield plan.study.name
    yield plan.machine.name
    for names in ({spec.model for spec in specs}, {spec.dataset for spec in specs}):
        if len(names) == 1 and OWN not in names:
            yield names.pop()


def device(plan: Plan) -> str:
    """Return what a worker's device is: the machine's, or `accelerator` in records of others."""
    return "accelerator" if plan.study.records else plan.machine.device


def in_random_order(study: str, specs: Iterable[RunSpec]) -> list[RunSpec]:
    """Return the runs in the random order in which they are made, so that a machine that drifts
    favours no side.

    All first repeats come before all second ones. Each odd repeat's runs are in an order of their
    own, and each even one's in that order reversed. Repeats with one number are compared as pairs
    (`analysis/significance.py`), so a drift moves both of a pair about alike. In the reversed order,
    a drift that moves the first pair one way moves the second the other way, and a queue that deals
    runs out to two nodes in turn gives each side both nodes. The order is made of the study's name
    and the runs' ids: it is the same each time, and a run more moves no other. Untimed runs, which
    may share the machine, come after the timed ones. On a cluster the queue has the last word.
    Sources: Box, Hunter & Hunter 2005, Statistics for Experimenters, chapters 3 and 4; Hoefler &
    Belli, SC'15, section 4.1.
    """

    def place(spec: RunSpec) -> tuple[bool, int, int]:
        odd = spec if spec.repeat % 2 else replace(spec, repeat=spec.repeat - 1)
        drawn = int(sha256(f"{study}/{odd.id}".encode()).hexdigest(), 16)
        return not spec.timed, spec.repeat, drawn if spec.repeat % 2 else -drawn

    return sorted(specs, key=place)
