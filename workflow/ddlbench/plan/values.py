"""Values of a plan that the rest of this room, and those below it, hand around: a job, all jobs, a
row of the bill.

`runs.py` makes plans, `bill.py` rows, and members of `kinds/` jobs. This file imports none of them.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from ddlbench.core import layout, registry
from ddlbench.core.digest import digest
from ddlbench.core.roles import STRONG, WEAK
from ddlbench.core.spec import RunSpec
from ddlbench.settings.machine import Machine
from ddlbench.settings.study import Study

S = TypeVar(
    "S", bound=Any
)  # a RunSpec, or what else has an id, ranks (`slurm.sbatch.Ranks`) and `to_json`
Resources = Mapping[str, str | int | None]


@dataclass(frozen=True)
class Job(Generic[S]):
    """A planned job: what it is, the form that it reads, what it asks of the machine
    (`launch.resources`) in which attempt (counted from 1), and the run whose weights it takes.
    """

    kind: str  # a member of `kinds/`
    spec: S
    manifest: str | None
    asks: Callable[[int], Resources]
    weights_of: str | None = None

    def __post_init__(self) -> None:
        """Compute the resources once, so that what the machine cannot hold is refused when it is
        planned.
        """
        self.resources  # noqa: B018

    @cached_property
    def resources(self) -> Resources:
        """Return the resources that the first attempt requests."""
        return self.asks(1)

    def asked(self, attempt: int) -> Resources:
        """Return what an attempt asks for: each further one asks for the first one's time again, as
        far as queues allow.
        """
        return self.resources if attempt == 1 else self.asks(attempt)

    @property
    def rule(self) -> str:
        return str(registry.member("kinds", self.kind).RULE.name)

    def folder(self, results: Path = layout.RESULTS) -> Path:
        return Path(results, registry.member("kinds", self.kind).RULE.folder, self.spec.id)

    def outputs(self, results: Path = layout.RESULTS) -> list[Path]:
        """Return the files that are there if and only if it has ended well; the first says what job
        it is of.
        """
        return [
            self.folder(results) / name for name in registry.member("kinds", self.kind).RULE.outputs
        ]

    def threads(self, cores: int | None) -> int:
        """Return how many of `cores` on one machine the job takes.

        Timed jobs have the machine to themselves, and so have jobs on GPUs, which all begin with
        the first one.
        """
        return (
            cores or 1 if self.spec.timed or self.spec.device == "cuda" else int(self.spec.workers)
        )


@dataclass(frozen=True)
class Plan:
    """The runs of a study on a machine, each once, by id; and which of them each block named.

    `order` are all ids in the order in which they are to be made. `left_out` are numbers of workers
    that the machine does not have, and that the study does not insist on. `non_training` are
    jobs of kinds that do not train, by id.
    """

    study: Study
    machine: Machine
    runs: Mapping[str, Job[RunSpec]]
    blocks: Mapping[str, tuple[str, ...]]
    left_out: tuple[int, ...]
    order: tuple[str, ...] = ()
    non_training: Mapping[str, Job[Any]] = field(default_factory=dict)

    @cached_property
    def places(self) -> dict[str, int]:
        """Return each run's place in the order, counted from 1."""
        return {run: place for place, run in enumerate(self.order, start=1)}

    @cached_property
    def jobs(self) -> dict[str, Job[Any]]:
        """Return all jobs by id, runs first.

        The result is cached: Snakemake needs each job some nine times.
        """
        return {**self.runs, **self.non_training}

    @cached_property
    def columns(self) -> dict[str, dict[str, Any]]:
        """Return each run's settings as columns of tables.

        The result is cached: each figure that selects runs needs all of them.
        """
        return {run: job.spec.columns() for run, job in self.runs.items()}

    @cached_property
    def digests(self) -> dict[str, str]:
        """Digests of each run's settings, by run: `collect` refuses records of others."""
        return {run: digest(json.loads(job.spec.to_json())) for run, job in self.runs.items()}

    @cached_property
    def scaling(self) -> dict[str, str]:
        """Return the kind of series that each run is in, by the batch that its blocks give: WEAK or
        STRONG. Runs of a block with one worker count, and those of blocks that say both, are left
        out.
        """
        series: dict[str, set[str]] = {}
        for block in self.study.blocks:
            ids = self.blocks[block.name]
            if len({self.runs[run].spec.workers for run in ids}) > 1:
                for run in ids:
                    series.setdefault(run, set()).add(STRONG if block.global_batch else WEAK)
        return {run: kind for run, (kind, *other) in series.items() if not other}

    def by_kind(self) -> dict[str, list[Job[Any]]]:
        kinds_of: dict[str, list[Job[Any]]] = {}
        for job in self.jobs.values():
            kinds_of.setdefault(job.kind, []).append(job)
        return kinds_of

    @cached_property
    def further(self) -> list[str]:
        """Return the runs (ids) that rounds have requested, beyond the repeats that each setting
        has in any case.
        """
        blocks = [block for block in self.study.blocks if block.further]
        runs = (
            run
            for block in blocks
            for run in self.blocks[block.name]
            if self._is_further(run, block.repeats)
        )
        return sorted({*runs})

    def _is_further(self, run: str, repeats: int) -> bool:
        return self.runs[run].spec.repeat > repeats

    @property
    def home(self) -> str:
        """Return the study's folder in `results/`."""
        return f"{self.study.name}/{self.machine.name}"

    @property
    def weights(self) -> list[str]:
        """Return the runs whose trained model another job takes, and which therefore leave their
        weights (ids).
        """
        return sorted({job.weights_of for job in self.jobs.values() if job.weights_of})

    def folders(self) -> list[Path]:
        return [job.folder() for job in self.jobs.values()]


@dataclass(frozen=True)
class Row:
    """A row of the bill: one job.

    Hours and what follows from them are what the job takes, or took if it is done; null is unknown.

    `estimate` says where the hours come from, `estimate_by` whether they are measured, predicted or
    guessed (`estimate.py`). `block` is the first that names the run; `place` is its place in the
    order in which runs are made, from 1. `gpu_hours` are hours of its own workers, also where those
    are cores. `workers_blocked` are the workers that nobody else can use meanwhile, which `price`
    counts. `energy_kwh` is the site's (`analysis/price.py`). `disk_bytes` and `inodes` are its
    record's. `rule` is the rule that makes it: the kind of job.
    """

    run: str
    block: str
    place: int
    model: str
    framework: str
    loader: str
    workers: int
    workers_blocked: int
    nodes: int
    epochs: int
    of_epochs: int
    state: str
    why: str
    estimate: str
    wall_s: float | None
    wall_s_low: float | None
    wall_s_high: float | None
    gpu_hours: float | None
    gpu_hours_low: float | None
    gpu_hours_high: float | None
    core_hours: float | None
    energy_kwh: float | None
    energy_measured: bool | None
    price: float | None
    currency: str | None
    disk_bytes: float
    inodes: int
    asks: str | None
    estimate_by: str | None = None
    rule: str = "train"
