"""Training: runs under a framework of the house, named by a study's blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from ddlbench.core import registry
from ddlbench.core.kinds import RUNS, JobRule
from ddlbench.core.recipe import for_schedule
from ddlbench.core.record import MLLOG, STEPS
from ddlbench.core.spec import RunSpec
from ddlbench.data import datasets
from ddlbench.plan import first_guess, fits, launch, stale
from ddlbench.plan.bill import make_row
from ddlbench.plan.estimate import RecordedTime, recorded_time
from ddlbench.plan.kinds import Books, PlanBasis
from ddlbench.plan.values import Job, Resources, Row
from ddlbench.settings.machine import Machine
from ddlbench.settings.study import Block, Study

RULE = JobRule("train", "run", "runs", (MLLOG, STEPS), "train.log", RUNS, ("run", ""))
BUILT_IN_LOOP = True
# steps.parquet has one row per step and rank; of random numbers, which compress no better, a row
# takes this [bytes].
STEP_BYTES = 29
LOG_BYTES = 100_000  # of a record without its steps; each rank adds half a kilobyte
RANK_BYTES = 600
FILES = 5  # of a record: the folder, run.mllog, steps.parquet, summary.jsonl, train.log


def runs(study: Study, machine: Machine, block: Block) -> list[RunSpec]:
    """Return every run that a block names.

    Raises ConfigError if the machine cannot hold one, or ranks do not divide a batch.
    """
    return [] if block.programs else list(_runs(study, machine, block))


def _runs(study: Study, machine: Machine, block: Block) -> Iterator[RunSpec]:
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
    recipe_of = cache(lambda batch, schedule: for_schedule(block.recipe_file.at(batch), schedule))
    for model, framework, loader, workers, batch, bandwidth_mbit, schedule, repeat in axes:
        fits.check_axes(study, block, machine, loader, workers, batch)
        global_batch = batch if block.global_batch else batch * workers
        forms = registry.member("loaders", loader).FORMS
        spec = RunSpec(
            machine=machine.name,
            device=machine.device,
            dataset=block.dataset,
            model=model,
            recipe=recipe_of(global_batch, schedule),
            framework=framework.name,
            options=framework.options,
            loader=loader,
            workers=workers,
            workers_per_node=min(workers, machine.workers_per_node),
            loader_threads=machine.loader_threads,
            global_batch=global_batch,
            schedule=schedule,
            epochs=block.measure.epochs if block.measure else block.epochs,
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


def jobs(basis: PlanBasis) -> dict[str, Job[RunSpec]]:
    wanted = {
        run: spec
        for run, spec in basis.runs.items()
        if spec.kind == "training" and basis.has_job(run)
    }
    return {run: _job(spec, basis) for run, spec in wanted.items()}


def _job(spec: RunSpec, given: PlanBasis) -> Job[RunSpec]:
    machine = given.machine

    def asks(attempt: int) -> Resources:
        if spec.id in given.minutes:
            minutes = machine.limit_minutes(spec.nodes, attempt * given.minutes[spec.id])
        else:
            minutes = guess_minutes(spec, machine, attempt, given.images.get(spec.dataset))
        return launch.resources(spec, machine, minutes, given.account)

    return Job("training", spec, manifest(spec, machine), asks)


def manifest(spec: RunSpec, machine: Machine) -> str | None:
    """Return the manifest of the form that a run reads; None if it reads nothing."""
    # Only the manifest of a user's data set states its numbers of pictures and classes, also for
    # readers that read nothing else.
    form = spec.reads or (None if spec.dataset in registry.members("datasets") else "raw")
    return f"{machine.data}/{spec.dataset}/{form}/manifest.json" if form else None


def guess_minutes(
    spec: RunSpec, machine: Machine, attempt: int = 1, images: int | None = None
) -> int:
    """Return the time limit [min] (`first_guess.limit_minutes`).

    This is a guess for queues; `estimate.py` predicts. `images` are those of an epoch; None: the
    number in the data set's module.
    """
    images = images or datasets.get(spec.dataset).IMAGES["train"]
    model, work = (spec.model, spec.recipe.image_size), spec.epochs * images
    return first_guess.limit_minutes(
        model, machine, spec.nodes, attempt, lambda rate: work / (rate * spec.workers)
    )


def rows(jobs: Sequence[Job[RunSpec]], books: Books, before: Sequence[Row]) -> list[Row]:
    """Return one row per run: the time it took if it is done, else the estimate."""
    return [
        _row(job, books, done, columns) for job, done, columns in with_common_columns(jobs, books)
    ]


def with_common_columns(
    jobs: Sequence[Job[RunSpec]], books: Books
) -> Iterator[tuple[Job[RunSpec], RecordedTime | None, dict[str, Any]]]:
    """Yield each run with its recorded time if it is done, and with the columns that are the same
    for all kinds of runs. Its block is the first that names it.
    """
    block = {run: block for block, named in reversed([*books.plan.blocks.items()]) for run in named}
    for job in jobs:
        spec, run = job.spec, job.spec.id
        record, metadata = books.records.get(run), books.metadata.get(run)
        recorded = record.spec if record else None
        is_now, why = stale.state(
            job.folder(books.results), spec, recorded, job.manifest, metadata, books.command
        )
        columns = {
            "block": block[run],
            "place": books.plan.places[run],
            "state": is_now,
            "why": why,
        }
        columns |= {"model": spec.model, "framework": spec.framework, "loader": spec.loader}
        columns |= {"epochs": spec.epochs, "of_epochs": spec.full_epochs}
        yield job, record if is_now == stale.DONE else None, columns


def _row(
    job: Job[RunSpec], books: Books, done: RecordedTime | None, columns: dict[str, Any]
) -> Row:
    spec, estimator, images = job.spec, books.estimator, books.images[job.spec.dataset]
    if done:
        took, energy_j = recorded_time(done.took_s), done.energy_j
    else:
        limit = job.resources.get("runtime")
        took = estimator.estimate(spec, images, limit if isinstance(limit, int) else None)
        energy_j = None
    power_w = estimator.power_w(spec)
    if energy_j is None and took.s is not None and power_w is not None:
        energy_j = power_w * took.s
    return make_row(
        job,
        estimator.machine,
        took,
        energy_j,
        **columns,
        disk_bytes=_record_bytes(spec, images, job.folder(books.results), columns["state"]),
        inodes=FILES + spec.profiled,
    )


def _record_bytes(spec: RunSpec, images: int, folder: Path, now: str) -> float:
    """Estimate the bytes of a record: its size if it is there, else by the number of steps."""
    if now in (stale.DONE, stale.STALE):
        return sum(
            (folder / name).stat().st_size for name in RULE.outputs if (folder / name).exists()
        )
    steps = spec.epochs * -(-images // spec.global_batch)
    return steps * spec.workers * STEP_BYTES + LOG_BYTES + spec.workers * RANK_BYTES


def progress(folder: Path, row: Row) -> str:
    """Describe how many epochs are done, by the log that is being written."""
    try:
        text = (folder / ".partial" / MLLOG).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "starting, "
    done = text.count('"key": "epoch_stop"')
    return f"epoch {min(done + 1, row.epochs)} of {row.epochs}, "
