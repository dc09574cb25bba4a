"""What a plan's runs need: images of an epoch, forms of data sets with their sizes, prepared or not
yet, software.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.core import layout, registry
from ddlbench.core.spec import RunSpec
from ddlbench.data import datasets
from ddlbench.data.manifest import Manifest
from ddlbench.data.source import SourceError
from ddlbench.plan import rounds, stale
from ddlbench.plan.runs import make_plan
from ddlbench.plan.values import Plan
from ddlbench.settings.config import ConfigError
from ddlbench.settings.dataset import load_dataset
from ddlbench.settings.machine import Machine, load_machine
from ddlbench.settings.study import Study, load_study


@dataclass(frozen=True)
class PlannedForm:
    """A form of a data set that runs read: what is there, or what it will need."""

    dataset: str
    form: str
    there: bool
    bytes: float
    inodes: int


def plan_of(
    config: Mapping[str, Any], all_repeats: bool = False, only: Collection[str] | None = None
) -> tuple[Plan, dict[str, int]]:
    """Return the plan of a checked configuration, and the images of an epoch by data set.

    The configuration's sources get the data sets that people describe themselves. With
    `all_repeats`, the plan has all repeats that may be made until the study is decided, not only
    those that rounds asked for. `only` are the runs (ids) whose jobs are wanted; None: all. Raises
    ConfigError.
    """
    study, machine, sources = (
        load_study(config["study"]),
        load_machine(config["machine"]),
        config["data"]["sources"],
    )
    for name in {block.dataset for block in study.blocks if not block.programs} - {
        *registry.members("datasets")
    }:
        sources[name] = load_dataset(name).to_json()
    counts = images(study, machine, sources)
    looks = rounds.read(Path(layout.rounds(f"{study.name}/{machine.name}"))) if study.until else []
    more = None if all_repeats else rounds.requested_runs(looks)
    account = config["account"]
    plan = make_plan(study, machine, account, counts, more, only, was_timed=stale.was_timed)
    return plan, counts


def expected(dataset: str, given: str | None) -> tuple[dict[str, int], int]:
    """Return (images per split, classes) of a data set; `given` is what data.sources says of it.

    Raises ConfigError.
    """
    try:
        images_and_classes: tuple[dict[str, int], int] = datasets.get(dataset).expected(given)
    except SourceError as error:
        raise ConfigError(f"config/config.yaml: {error}") from None
    return images_and_classes


def images(study: Study, machine: Machine, sources: Mapping[str, str]) -> dict[str, int]:
    """Return the images of an epoch by data set: of a prepared form, else as many as are asked for.

    Raises ConfigError.
    """
    counts = {}
    for dataset in {block.dataset for block in study.blocks if not block.programs}:
        prepared = sorted(Path(machine.data, dataset).glob("*/manifest.json"))
        try:
            counts[dataset] = Manifest.read(prepared[0].parent).splits["train"].images
        except (
            IndexError,
            OSError,
            KeyError,
            TypeError,
            ValueError,
        ):  # none, or of another version: it is made anew
            counts[dataset] = expected(dataset, sources.get(dataset))[0]["train"]
    return counts


def forms(plan: Plan, sources: Mapping[str, str]) -> list[PlannedForm]:
    """Return every form that a run reads. Raises ConfigError."""
    read = []
    pairs = {
        (r.spec.dataset, Path(r.manifest).parent.name, r.manifest)
        for r in plan.runs.values()
        if r.manifest
    }
    for dataset, form, manifest in sorted(pairs):
        member, source = datasets.get(dataset), sources.get(dataset)
        split, classes = expected(dataset, source)
        size, inodes = registry.member("forms", form).needs(split, classes, member.PICTURE_BYTES)
        try:
            prepared = Manifest.read(Path(manifest).parent)
        except (OSError, TypeError, ValueError):
            in_place = registry.member("forms", form).IN_PLACE and member.in_place(source)
            read.append(
                PlannedForm(
                    dataset, form, False, 0.0 if in_place else size, 6 if in_place else inodes
                )
            )
        else:
            read.append(
                PlannedForm(
                    dataset,
                    form,
                    True,
                    float(sum(s.bytes for s in prepared.splits.values())),
                    inodes,
                )
            )
    return read


def unnamed(plan: Plan, sources: Mapping[str, str], runs: Collection[str]) -> list[str]:
    """Return one line for each data set that these runs need prepared, and whose place nothing
    names.
    """
    return [
        f"config/config.yaml: data.sources.{dataset}: is missing; {needs}"
        for dataset, needs in _wanted(plan, runs).items()
        if dataset not in sources
    ]


def remarks(plan: Plan, sources: Mapping[str, str], runs: Collection[str]) -> list[str]:
    """Return problems that would otherwise show only in the queue if these runs were started now,
    one line each.
    """
    lines = unnamed(plan, sources, runs)
    for dataset in _wanted(plan, runs).keys() & sources.keys():
        if not Path(sources[dataset]).exists():
            lines.append(
                f"config/config.yaml: data.sources.{dataset}: {sources[dataset]} does not exist on"
                " this host"
            )
    for dataset in _unprepared(plan, runs):
        lines += datasets.remarks(dataset)
    asked = [plan.runs[run].resources for run in runs if run in plan.runs][:1]
    if any(
        resources.get("slurm_partition") and not resources.get("slurm_account")
        for resources in asked
    ):
        lines.append(
            "config/config.yaml: account: is missing; SLURM bills your default account, and refuses"
            " jobs if you have none: --config account=..."
        )
    return lines


def _wanted(plan: Plan, runs: Collection[str]) -> dict[str, str]:
    """Return what `data.sources` has to name, by data set, for these runs; prepared ones need
    nothing.
    """
    needs = {dataset: datasets.get(dataset).NEEDS for dataset in _unprepared(plan, runs)}
    return {dataset: need for dataset, need in needs.items() if need is not None}


def _unprepared(plan: Plan, runs: Collection[str]) -> list[str]:
    """List the data sets whose form, which these runs need, does not exist."""
    jobs = (plan.runs[run] for run in runs if run in plan.runs)
    read = {(job.manifest, job.spec.dataset) for job in jobs if job.manifest}
    return sorted({dataset for manifest, dataset in read if not Path(manifest).exists()})


def missing_packages(specs: Sequence[RunSpec], machine: Machine) -> list[str]:
    """Return the packages that the runs import and this Python lacks, one line each: by name, with
    what installs it. The list is empty on a machine whose software comes from modules: only a job
    there can tell.
    """
    if machine.modules or machine.container:
        return []
    members = {("frameworks", s.adapter) for s in specs} | {("loaders", s.loader) for s in specs}
    lines = []
    for room, name in sorted(members):
        needs = registry.member(room, name)
        if needs.PACKAGE is not None and not registry.importable(needs.PACKAGE):
            lacks = f"{room[:-1]} {name} is not installed (no Python package {needs.PACKAGE})"
            lines.append(f"{lacks}; install it with: {needs.INSTALL}")
    return lines


def check_software(plan: Plan, results: Path) -> None:
    """Raise ConfigError if a run without a record needs what is not installed here."""
    begun = layout.begun(results)
    todo = [
        job.spec
        for run, job in plan.runs.items()
        if run not in begun or not Path(layout.run_log(run, results=results)).exists()
    ]
    missing = missing_packages(todo, plan.machine)
    if missing:
        raise ConfigError(f"{plan.study.path}: {'; '.join(missing)}; or leave it out of the study")
