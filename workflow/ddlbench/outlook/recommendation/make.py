"""From the configuration and run folders to table, figure and text. `snakemake recommend` calls it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis import refusals
from ddlbench.analysis.collect import collect
from ddlbench.audit import _findings
from ddlbench.core import files, layout, registry
from ddlbench.core.plural import count_of
from ddlbench.outlook.recommendation import NothingToRecommendError, candidates, choice, convergence, front, words
from ddlbench.plan import reads, runs
from ddlbench.settings.config import CONFIG
from ddlbench.settings.machine import Machine, load_machine
from ddlbench.settings.study import load_study
from ddlbench.show.figures import Options

NAME = "recommendation"  # of table and figure
REFERENCE = CONFIG / "references" / "mlperf-rcp-resnet50.csv"


def make(config: Mapping[str, Any], folders: Sequence[Path], results: Path = layout.RESULTS) -> tuple[str, list[Path]]:
    """Writes the table of all candidates and the figure; (the text, their paths). Raises NothingToRecommendError.

    Tables of runs are made anew from the records that are there, so that it also works while a study is not finished.
    """
    target = config["target"]
    if target is None:
        raise NothingToRecommendError("config: target: is missing; a top-1 accuracy in 0..1: --config target=0.759")
    study, machine = load_study(config["study"]), load_machine(config["machine"])
    plan = runs.make_plan(study, machine, config["account"], reads.images(study, machine, config["data"]["sources"]))
    with tempfile.TemporaryDirectory() as aside:
        read = {} if study.records is None else {"read": registry.member("records", study.records.kind).read}
        collect(folders, Path(aside), dict(machine.peak_tflops_per_worker), runs.digests(plan), **read)
        measured, epochs = (pd.read_parquet(Path(aside, f"{table}.parquet")) for table in ("runs", "epochs"))
        refused = refusals.lines(refusals.read(Path(aside)))
    planned = sorted({run.spec.workers for run in plan.runs.values()})
    of = f"study {study.name}" + ("" if study.records else f" on machine {machine.name}")
    try:
        made = rows(measured, epochs, target, None if study.records else machine, planned)
    except NothingToRecommendError as error:
        raise NothingToRecommendError(f"{of}: {error}") from None
    table = results / study.name / "tables" / f"{NAME}.csv"
    table.parent.mkdir(parents=True, exist_ok=True)
    with files.aside(table) as hidden:
        pd.DataFrame(made).to_csv(hidden, index=False)
    names = tuple(sorted({run.spec.framework for run in plan.runs.values()}))
    device = "accelerator" if study.records else machine.device
    options = Options(study.title, device, machine.device_name, names, target=target)
    picture = results / study.name / "figures" / f"{NAME}.png"
    front.save(made, options, picture.with_suffix(""))
    said = [*text(made, target, None if study.records else machine), fairness(table.with_name("audit.csv")), *refused]
    return "\n".join(said), [table, picture]


def fairness(audit: Path) -> str:
    """What the study's audit found, if it was made: runs that cannot be compared make no recommendation."""
    if not audit.exists():
        return "the audit has not looked at these runs: snakemake audit, with the same options"
    errors = _findings.worst(_findings.read(audit), "error")
    if not errors:
        return "the audit found no errors in these runs"
    rules = ", ".join(sorted({row["rule"] for row in errors}))
    return f"the audit found errors ({rules}): candidates may not be comparable; see {audit}"


def rows(
    measured: pd.DataFrame, epochs: pd.DataFrame, target: float, machine: Machine | None, planned: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """All candidates, the best of each model and data set first, then those that are none and why.

    `measured` and `epochs` are the tables `runs` and `epochs` of `collect`; `machine` is None for records of others.
    Raises NothingToRecommendError.
    """
    if machine is None and len(measured):
        measured = candidates.of_others(measured)
    timed = measured[(measured["status"] == "success") & measured["throughput_images_per_s"].notna()]
    if timed.empty:
        raise NothingToRecommendError("no finished timed run" + ("; train first" if machine else ""))
    curves = convergence.curves(measured, epochs, target, pd.read_csv(REFERENCE) if machine else None)
    if machine is None:
        curves = [replace(curve, source=convergence.THEIRS) for curve in curves]
    made = candidates.rows(measured, curves, machine, planned)
    usable = [row for row in made if row["why_not"] is None]
    if not usable:
        reasons = sorted({row["why_not"] for row in made})
        why = reasons[0] if reasons else "no loader of a finished timed run has anything to learn from"
        more = f" (and {len(reasons) - 1} more reasons)" if len(reasons) > 1 else ""
        raise NothingToRecommendError(f"no candidate: {why}{more}")
    choice.mark_front(made)
    ordered: list[dict[str, Any]] = []
    for chosen in choices(usable):
        alike = [id(row) for row in chosen.alike]
        ordered += [
            {**row, "place": place, "like_first": id(row) in alike} for place, row in enumerate(chosen.ordered, 1)
        ]
    return ordered + [{**row, "place": None, "like_first": None} for row in made if row["why_not"] is not None]


def choices(usable: Sequence[dict[str, Any]]) -> list[choice.Choice]:
    """One per data set and model, and of others' records per accelerator: nobody knows what another one costs."""
    groups: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
    for row in usable:
        groups.setdefault(choice.subject(row), []).append(row)
    return [choice.choose(some) for some in groups.values()]


def text(made: Sequence[dict[str, Any]], target: float, machine: Machine | None) -> list[str]:
    """What people read. `made` are `rows`."""
    said: list[str] = []
    for chosen in choices([row for row in made if row["why_not"] is None]):
        said += words.lines(chosen, target)
    said.append("hours are those of training steps: validation, checkpoints and starts of epochs come on top")
    if any(row["speed_by"] == candidates.PREDICTED and row["why_not"] is None for row in made):
        said.append("[predicted]: nobody ran so many workers; docs/prediction.md says how good such numbers are")
    largest = max(row["workers"] for row in made if row["speed_by"] == candidates.MEASURED)
    if machine and largest <= machine.workers_per_node < machine.workers:
        beyond = 2 * machine.workers_per_node
        said.append(f"nothing is said of more than one node, because none was measured: measure {beyond} workers")
    reasons: dict[tuple[str, str], int] = {}
    for row in made:
        if row["why_not"] is not None:
            reasons[row["model"], row["why_not"]] = reasons.get((row["model"], row["why_not"]), 0) + 1
    for (model, why), count in reasons.items():
        said.append(f"left out of {model}, {count_of(count, 'candidate')}: {why}")
    return said
