"""Kinds of jobs: what can be planned, billed, started, watched, listed as failed and asked again. One file per kind.

`Kind` is what a file of this room offers, `Job` what it plans. Plan, bill, limits, status, failures, rules and page ask
`core/kinds.py` for the kind of a job, and name none. What a job does when it has started is in `run/`; `run/job.py` has
what is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ddlbench.core import layout, registry
from ddlbench.core.spec import RunSpec
from ddlbench.settings.machine import Machine
from ddlbench.settings.study import Block, Study

if TYPE_CHECKING:
    from ddlbench.plan.bill import Row
    from ddlbench.plan.estimate import Estimator, RecordedTime
    from ddlbench.plan.runs import Plan
    from ddlbench.plan.stale import Memory

S = TypeVar("S", bound=Any)  # a RunSpec, or what else has an id, ranks (`slurm.jobs.Ranks`) and `to_json`
Resources = Mapping[str, str | int | None]


@dataclass(frozen=True)
class Job(Generic[S]):
    """A planned job: what it is, the form that it reads, what it asks of the machine (`launch.resources`) in which
    attempt (counted from 1), and the run whose weights it takes."""

    kind: str  # a member of this room
    spec: S
    manifest: str | None
    asks: Callable[[int], Resources]
    weights_of: str | None = None

    def __post_init__(self) -> None:
        """Asks once, so that what the machine cannot hold is refused when it is planned."""
        self.resources  # noqa: B018

    @cached_property
    def resources(self) -> Resources:
        """Gives what the first attempt asks for."""
        return self.asks(1)

    def asked(self, attempt: int) -> Resources:
        """`resources` of the first attempt; each further one asks for that much time again, as far as queues go."""
        return self.resources if attempt == 1 else self.asks(attempt)

    @property
    def rule(self) -> str:
        return str(registry.member("kinds", self.kind).RULE)

    def folder(self, results: Path = layout.RESULTS) -> Path:
        return Path(results, registry.member("kinds", self.kind).FOLDER, self.spec.id)

    def outputs(self, results: Path = layout.RESULTS) -> list[Path]:
        """What is there if and only if it has ended well; the first says what it is of."""
        return [self.folder(results) / name for name in registry.member("kinds", self.kind).OUTPUTS]

    def threads(self, cores: int | None) -> int:
        """Of `cores` on one machine: timed jobs have it to themselves, and so have jobs on GPUs, which all begin with
        the first one."""
        return cores or 1 if self.spec.timed or self.spec.device == "cuda" else int(self.spec.workers)


@dataclass(frozen=True)
class PlanBasis:
    """What jobs are planned with: `runs` are all runs of the study by id, `blocks` the ids that each block names;
    `images` are those of an epoch by data set, where its module is not right; `minutes` are time limits that the study
    or a program's file gives, by run."""

    study: Study
    machine: Machine
    account: str | None
    images: Mapping[str, int]
    runs: Mapping[str, RunSpec]
    blocks: Mapping[str, Sequence[str]]
    minutes: Mapping[str, int]


@dataclass(frozen=True)
class Books:
    """What rows of the bill are made from: `records` are those of runs, by run; `memories` and `command` are for
    `stale.state`."""

    plan: Plan
    images: Mapping[str, int]
    results: Path
    records: Mapping[str, RecordedTime]
    estimator: Estimator
    memories: Mapping[str, Memory]
    command: str | None


class Kind(Protocol):
    """One file of this room."""

    RULE: str  # of Snakemake, which makes its jobs
    WILDCARD: str  # of that rule: a job's id
    FOLDER: str  # in `results/`, a folder in it per job
    OUTPUTS: tuple[str, ...]  # there if and only if a job has ended well; the first says what it is of
    LOG: str  # what its processes print
    # The study's table of them: `core.kinds.RUNS` if its jobs train, else a member of `analysis/sheets/` with `of_job`.
    TABLE: str
    NOUN: tuple[str, str]  # what people call a job, in two parts: the first gets the plural
    KEY: str  # of a study, that names its jobs
    PAGE: str  # heading of its table on the page
    # Whether our own loop makes the steps: with a recipe, of whole batches, each epoch validated. Of others only the
    # record says what they were.
    OURS: bool

    def runs(self, study: Study, machine: Machine, block: Block) -> Sequence[RunSpec]:
        """The runs of this kind that a block of the study names. Raises ConfigError for one that cannot be."""

    def jobs(self, basis: PlanBasis) -> Mapping[str, Job[Any]]:
        """All jobs of this kind in a study, by id. Raises ConfigError for one that cannot be."""

    def rows(self, jobs: Sequence[Job[Any]], books: Books, before: Sequence[Row]) -> list[Row]:
        """A row of the bill per job; `before` are those of other kinds."""

    def progress(self, folder: Path, row: Row) -> str:
        """How far a job is, by what it has left in its folder so far: words with a comma behind them, or ""."""
