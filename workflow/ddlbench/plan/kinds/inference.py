"""Inference: jobs that ask runs' models, served in each way, with batches of several sizes; a
study's key `inference`.

What a job is guessed to take is `work_s`, by the rate at which the model trains, and what its
trainings took to begin and to end: by records, else by the machine's `images_per_s` and a minute.
Records say what their job took, from its first process to its last.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from ddlbench.core import registry
from ddlbench.core.formatting import count_of
from ddlbench.core.kinds import JobRule
from ddlbench.core.spec import RunSpec
from ddlbench.data import datasets
from ddlbench.plan import first_guess, fits, launch
from ddlbench.plan.bill import make_row
from ddlbench.plan.estimate import (
    ANOTHER,
    BEGIN_AND_END_S,
    GUESS,
    GUESSED,
    MEASURED,
    ONE_RUN,
    Estimate,
    Estimator,
    from_times,
    recorded_time,
)
from ddlbench.plan.kinds import Books, PlanBasis
from ddlbench.plan.kinds.training import manifest
from ddlbench.plan.stale import DONE, STALE, changes, unfinished
from ddlbench.plan.values import Job, Resources, Row
from ddlbench.settings.config import complain
from ddlbench.settings.machine import Machine
from ddlbench.settings.study import Block, Study
from ddlbench.settings.study_keys import Inference
from ddlbench.train.inference import SECONDS, InferSpec, requests
from ddlbench.train.inference_record import LOG, RECORD

RULE = JobRule("infer", "job", "inference", (RECORD,), LOG, "inference", ("job", " of inference"))
BUILT_IN_LOOP = False
PROGRAM = ("python", "-m", "ddlbench.train.inference")
# A forward pass is a third of a training step: the backward pass computes two gradients for each
# product.
FORWARD = 1 / 3
# The framework whose rank 0 has all weights at the end, as plain tensors.
TRAINED_BY = "ddp"
PRECISIONS = ("fp32", "tf32", "bf16")  # in which models can serve; nobody has tried fp16
FILES = 3  # of a record: the folder, inference.json, infer.log
RECORD_BYTES = 8000  # of a batch size: up to 300 times of 20 digits, and its share of the rest
MOST_S = 3600.0  # where nobody knows how fast a model answers


def runs(study: Study, machine: Machine, block: Block) -> list[RunSpec]:
    """Return no runs: inference uses those of other blocks."""
    return []


def jobs(basis: PlanBasis) -> dict[str, Job[InferSpec]]:
    """Return every job of the study's key `inference`, by id.

    Raises ConfigError if its block has no run to take a model from, or the machine cannot hold a
    job.
    """
    study, machine, wanted = basis.study, basis.machine, basis.study.inference
    if wanted is None:
        return {}
    splits = any(registry.member("inference", member).SPLITS for member in wanted.members)
    for workers in wanted.workers if splits else ():
        fits.check_workers(study, "inference.workers", machine, workers)
    models = _models(study, wanted, [basis.runs[run] for run in basis.blocks[wanted.runs]])
    specs = [
        InferSpec(
            run=run,
            trained=wanted.trained,
            member=member,
            workers=workers,
            workers_per_node=min(workers, machine.workers_per_node),
            batches=tuple(sorted(wanted.batches)),
            repeat=repeat,
        )
        for run, member, repeat in product(models, wanted.members, range(1, wanted.repeats + 1))
        for workers in (wanted.workers if registry.member("inference", member).SPLITS else (1,))
    ]
    return {spec.id: _job(spec, basis) for spec in specs}


def _job(spec: InferSpec, given: PlanBasis) -> Job[InferSpec]:
    machine = given.machine

    def asks(attempt: int) -> Resources:
        return launch.resources(
            spec, machine, guess_minutes(spec, machine, attempt), given.account, PROGRAM
        )

    return Job(
        "inference", spec, manifest(spec.run, machine), asks, spec.run.id if spec.trained else None
    )


def work_s(spec: InferSpec, rate: float) -> float:
    """Guess how long a job serves [s], where a worker trains so many images per second: its
    requests, and all validation pictures twice. The guess treats all ways to serve alike, and
    several workers like one.
    """
    one_s = FORWARD / rate
    # Three requests of each batch size come before those that are counted (`_measure.latencies`).
    sent = sum((requests(batch * one_s) + 3) * batch for batch in spec.batches)
    return one_s * (sent + 2 * datasets.get(spec.run.dataset).IMAGES["val"])


def guess_minutes(spec: InferSpec, machine: Machine, attempt: int = 1) -> int:
    """Return the time limit [min] (`first_guess.limit_minutes`): half an hour to begin and to
    compile, 1.5 times `work_s`.
    """
    model = (spec.run.model, spec.run.recipe.image_size)
    return first_guess.limit_minutes(
        model, machine, spec.nodes, attempt, lambda rate: work_s(spec, rate), 1.5
    )


def _models(study: Study, wanted: Inference, block: Iterable[RunSpec]) -> list[RunSpec]:
    """Choose one run for each model and recipe of the block: of those under TRAINED_BY that learn,
    the one with the fewest workers, and its first repeat. Raises ConfigError without any.
    """
    reading = [run for run in block if run.adapter == TRAINED_BY and run.reads]
    learn = [run for run in reading if registry.member("loaders", run.loader).LEARNS]
    learn.sort(key=lambda run: (run.workers, run.repeat))
    chosen: dict[tuple[str, str], RunSpec] = {}
    for run in learn:
        chosen.setdefault((run.model, run.recipe.name), run)
    if not chosen:
        allowed = f"allowed: a block with framework {TRAINED_BY} and a loader that reads pictures"
        raise complain(study.path, "inference.runs", wanted.runs, allowed)
    for run in chosen.values():
        if run.recipe.precision not in PRECISIONS:
            reason = f"its recipe {run.recipe.name} has precision {run.recipe.precision}"
            raise complain(
                study.path,
                "inference.runs",
                wanted.runs,
                f"{reason}; allowed: {', '.join(PRECISIONS)}",
            )
    return list(chosen.values())


@dataclass(frozen=True)
class Asked:
    """The facts of a record of inference about its job; `took_s` is None where the record has no
    valid time. `bytes` is its size.
    """

    spec: Mapping[str, Any]
    took_s: float | None
    bytes: int


def read(path: Path) -> Asked | None:
    """Read the record of a job; None if there is none or it cannot be read: then its table refuses
    it.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        took_s = record.get("took_s")
        took_s = (
            float(took_s) if isinstance(took_s, int | float) and 0 < took_s < math.inf else None
        )
        _matching_keys(record["spec"])
        return Asked(record["spec"], took_s, path.stat().st_size)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _matching_keys(spec: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the exact and the coarse matching key of an InferSpec's fields, by which similar
    records are found.
    """
    run = spec["run"]
    least = (
        run["machine"],
        run["dataset"],
        run["model"],
        run["recipe"]["image_size"],
        tuple(spec["batches"]),
    )
    return (*least, spec["member"], spec["workers"]), least


def rows(jobs: Sequence[Job[InferSpec]], books: Books, before: Sequence[Row]) -> list[Row]:
    """Return one row per job: its block is the study's key, its framework the way to serve, and it
    has no epochs.
    """
    if not jobs:
        return []
    all_records = {
        path.parent.name: read(path)
        for path in sorted(Path(books.results, RULE.folder).glob(f"*/{RECORD}"))
    }
    records = {name: record for name, record in all_records.items() if record}
    asking, done = (
        InferenceEstimator(records.values(), books.estimator),
        {row.run for row in before if row.state == DONE},
    )
    table = []
    for place, job in enumerate(jobs, start=len(before) + 1):
        spec, record = job.spec, records.get(job.spec.id)
        reasons = changes(record.spec, json.loads(spec.to_json())) if record else []
        if not reasons and job.weights_of and job.weights_of not in done:
            reasons = ["the run whose model it uses has to be made first"]
        is_now, why = (STALE, "; ".join(reasons)) if reasons else (DONE, "")
        if record is None:
            is_now, why = unfinished(job.folder(books.results))
        row = make_row(
            job,
            books.estimator.machine,
            recorded_time(record.took_s) if is_now == DONE and record else asking.estimate(spec),
            block=RULE.table,
            place=place,
            state=is_now,
            why=why,
            model=spec.run.model,
            framework=spec.member,
            loader=spec.run.loader,
            epochs=0,
            of_epochs=0,
            disk_bytes=record.bytes if record else RECORD_BYTES * len(spec.batches),
            inodes=FILES,
        )
        table.append(row)
    return table


def progress(folder: Path, row: Row) -> str:
    """Return "": a job of inference has no epochs."""
    return ""


class InferenceEstimator:
    """Estimates for jobs of inference, from records of other such jobs and from estimates of
    training.
    """

    def __init__(self, records: Iterable[Asked], training: Estimator) -> None:
        self.trains = training
        self._same: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        self._near: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        for record in records:
            if record.took_s is not None:
                same_kind, least = _matching_keys(record.spec)
                self._same[same_kind].append(record.took_s)
                self._near[least].append(record.took_s)

    def estimate(self, spec: InferSpec) -> Estimate:
        """Estimate how long this job takes if it is made (again)."""
        same_kind, least = _matching_keys(json.loads(spec.to_json()))
        if took := self._same.get(same_kind):
            wider = 1.0 if len(took) > 1 else ONE_RUN
            return from_times(took, wider, count_of(len(took), "measured job"), MEASURED)
        if took := self._near.get(least):
            return from_times(
                took, ANOTHER, f"{count_of(len(took), 'measured job')}, in other ways", GUESSED
            )
        like = self.trains.like(spec.run)[0]
        low, likely, high = like.begin_and_end_s if like else BEGIN_AND_END_S
        high = max(high, BEGIN_AND_END_S[2])  # a model may be compiled first
        rate, whose = (
            self.trains.machine.rate(spec.run.model, spec.run.recipe.image_size),
            "the machine's images_per_s",
        )
        if like:
            rate, whose = like.rates[min(like.rates)].mean, "records"
        if rate is None:
            work = SECONDS * len(spec.batches)
            basis = (
                f"{SECONDS:g} s for each batch size: no estimate of how fast {spec.run.model}"
                " answers"
            )
            return Estimate(low, likely + work, MOST_S, basis, GUESSED)
        work = work_s(spec, rate)
        basis = f"a third of a training step by {whose} for each answer"
        return Estimate(low + work / GUESS, likely + work, high + work * GUESS, basis, GUESSED)
