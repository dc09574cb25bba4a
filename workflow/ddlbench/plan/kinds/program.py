"""A program: runs of a user's own training program, named by a block's key `programs`
(config/programs).

Its runs are made by the rule of trainings, and leave what these leave. How long one takes, only
records of the same program and settings say.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from ddlbench.core.program import EACH
from ddlbench.core.record import MLLOG
from ddlbench.core.registry import OWN
from ddlbench.core.spec import RunSpec, of_program
from ddlbench.plan import fits, launch
from ddlbench.plan.bill import make_row
from ddlbench.plan.estimate import (
    BEGIN_AND_END_S,
    MEASURED,
    ONE_RUN,
    UNKNOWN,
    Estimate,
    from_times,
    recorded_time,
)
from ddlbench.plan.kinds import Books, PlanBasis
from ddlbench.plan.kinds.training import FILES, with_common_columns
from ddlbench.plan.kinds.training import RULE as RULE
from ddlbench.plan.values import Job, Resources, Row
from ddlbench.settings.machine import Machine
from ddlbench.settings.study import Block, Study
from ddlbench.slurm.sbatch import job_resources

BUILT_IN_LOOP = False
# Snakemake sets each to the threads of a job, which are those of all its workers.
THREADS = (
    *(f"{name}_NUM_THREADS" for name in ("OMP", "MKL", "OPENBLAS", "GOTO", "NUMEXPR")),
    "VECLIB_MAXIMUM_THREADS",
)


def runs(study: Study, machine: Machine, block: Block) -> list[RunSpec]:
    """Return every run of a program that a block names.

    Raises ConfigError if the machine cannot hold one.
    """
    counts = [workers for workers in block.workers if workers <= machine.workers or not block.fit]
    batches = block.batch_per_worker or block.global_batch
    specs = []
    for program, workers, batch, repeat in product(
        block.own_programs, counts, batches, range(1, block.repeats + 1)
    ):
        fits.check_axes(study, block, machine, OWN, workers, batch)
        spec = of_program(
            program,
            machine=machine.name,
            device=machine.device,
            workers=workers,
            workers_per_node=min(workers, machine.workers_per_node),
            global_batch=batch if block.global_batch else batch * workers,
            repeat=repeat,
            timed=block.timed,
        )
        fits.check_id(study, block, spec)
        specs.append(spec)
    return specs


def jobs(basis: PlanBasis) -> dict[str, Job[RunSpec]]:
    wanted = {
        run: spec
        for run, spec in basis.runs.items()
        if spec.kind == "program" and basis.has_job(run)
    }
    return {run: _job(spec, basis) for run, spec in wanted.items()}


def _job(spec: RunSpec, given: PlanBasis) -> Job[RunSpec]:
    machine = given.machine

    def asks(attempt: int) -> Resources:
        start: dict[str, str | int | None] = {"launch": shlex.join(command(spec, machine))}
        if machine.launcher != "slurm":
            return start
        said = given.minutes.get(spec.id)
        minutes = machine.limit_minutes(spec.nodes, None if said is None else attempt * said)
        return start | job_resources(spec, machine, minutes, given.account)

    return Job("program", spec, None, asks)


def command(spec: RunSpec, machine: Machine) -> list[str]:
    """Return the argv that starts the program; its supervisor adds the run's folder."""
    assert spec.program is not None
    threads = dict.fromkeys(
        THREADS, str(machine.cores_per_worker if machine.device == "cpu" else 1)
    )
    variables = threads | dict(launch.hide(machine).environment) | launch.host_suffix(machine)
    settings = [f"{name}={value}" for name, value in variables.items()]
    rank: tuple[str, ...] = ("python", "-m", "ddlbench.run.rank")
    if spec.program.ranks == EACH and machine.launcher != "local":
        rank = tuple(launch.launcher(spec, machine, rank))
        rank = ("srun", "--label", *rank[1:]) if rank[0] == "srun" else rank
    else:
        rank = (
            *machine.container,
            *rank,
            *(("--start", str(spec.workers)) if spec.program.ranks == EACH else ()),
        )
    return ["env", *settings, *rank]


def rows(jobs: Sequence[Job[RunSpec]], books: Books, before: Sequence[Row]) -> list[Row]:
    """Return one row per run. Its loader is `own`, and the run is one single epoch."""
    took: dict[str, list[float]] = {}
    energies_j: dict[str, list[float]] = {}
    for measured in books.records.values():
        key = _matching_key(measured.spec)
        took.setdefault(key, []).append(measured.took_s)
        if measured.energy_j is not None:
            energies_j.setdefault(key, []).append(measured.energy_j)
    table = []
    for job, done, columns in with_common_columns(jobs, books):
        key = _matching_key(json.loads(job.spec.to_json()))
        of_like_j = fmean(energies_j[key]) if key in energies_j else None
        row = make_row(
            job,
            books.estimator.machine,
            recorded_time(done.took_s) if done else _estimate(job, took.get(key)),
            done.energy_j if done and done.energy_j is not None else of_like_j,
            **columns,
            disk_bytes=sum(
                path.stat().st_size for path in job.outputs(books.results) if path.exists()
            ),
            inodes=FILES,
        )
        table.append(row)
    return table


def _matching_key(spec: Mapping[str, Any]) -> str:
    """Return the key of runs that should take equally long: all settings but the repeat and whether
    it is timed.
    """
    return json.dumps(
        {name: value for name, value in spec.items() if name not in ("repeat", "timed")},
        sort_keys=True,
    )


def _estimate(job: Job[RunSpec], took: Sequence[float] | None) -> Estimate:
    """Estimate from runs with the same settings. Without one only the most that it can take may be
    known: the queue's limit, or when it is ended.
    """
    if took:
        wider = ONE_RUN if len(took) == 1 else 1.0
        return from_times(took, wider, f"{len(took)} measured runs", MEASURED)
    program, runtime = job.spec.program, job.resources.get("runtime")
    assert program is not None
    ended = program.most_minutes
    most_s = [60.0 * runtime] if isinstance(runtime, int) else []
    most_s += [60.0 * ended + BEGIN_AND_END_S[-1]] if ended else []
    nothing = f"{UNKNOWN}: no record of program {job.spec.model} with these settings"
    return Estimate(0.0 if most_s else None, None, min(most_s, default=None), nothing)


def progress(folder: Path, row: Row) -> str:
    """Tell whether its record is being made; none of its own steps is read before it ends."""
    return "making its record, " if (folder / ".partial" / MLLOG).exists() else ""
