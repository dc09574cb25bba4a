"""Kinds of jobs: what can be planned, billed, started, watched, listed as failed and asked again.
One file per kind.

`Kind` is what a file of this room offers; it plans jobs (`Job` in `plan/values.py`). Plan, bill,
limits, status, failures, rules and page ask `core/kinds.py` for the kind of a job, and name none.
What a job does when it has started is in `run/`; `run/job.py` has what is the same for all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ddlbench.core.kinds import JobRule
from ddlbench.core.spec import RunSpec
from ddlbench.plan.values import Job, Plan, Row
from ddlbench.settings.machine import Machine
from ddlbench.settings.study import Block, Study

if TYPE_CHECKING:
    from ddlbench.plan.estimate import Estimator, RecordedTime
    from ddlbench.plan.stale import JobMetadata


@dataclass(frozen=True)
class PlanBasis:
    """What jobs are planned with: `runs` are all runs of the study by id, `blocks` the ids that
    each block names; `images` are those of an epoch by data set, where its module is not right;
    `minutes` are time limits that the study or a program's file gives, by run. `only`: of which
    runs jobs are wanted (ids); None: of all.
    """

    study: Study
    machine: Machine
    account: str | None
    images: Mapping[str, int]
    runs: Mapping[str, RunSpec]
    blocks: Mapping[str, Sequence[str]]
    minutes: Mapping[str, int]
    only: Collection[str] | None = None

    def has_job(self, run: str) -> bool:
        """Whether a run of the study needs a job."""
        return self.only is None or run in self.only


@dataclass(frozen=True)
class Books:
    """The basis of the rows of the bill: `records` are those of runs, by run; `metadata` and
    `command` are for `stale.state`.
    """

    plan: Plan
    images: Mapping[str, int]
    results: Path
    records: Mapping[str, RecordedTime]
    estimator: Estimator
    metadata: Mapping[str, JobMetadata]
    command: str | None


class Kind(Protocol):
    """The contract of a file of this room."""

    RULE: JobRule  # which makes its jobs; kinds may share one
    # Whether the training loop of ddlbench makes the steps: with a recipe, of whole batches, each
    # epoch validated. Of a program only the record says what they were.
    BUILT_IN_LOOP: bool

    def runs(self, study: Study, machine: Machine, block: Block) -> Sequence[RunSpec]:
        """Return the runs of this kind that a block of the study names.

        Raises ConfigError for one that cannot be made.
        """

    def jobs(self, basis: PlanBasis) -> Mapping[str, Job[Any]]:
        """Return all jobs of this kind in a study, by id.

        Raises ConfigError for one that cannot be made.
        """

    def rows(self, jobs: Sequence[Job[Any]], books: Books, before: Sequence[Row]) -> list[Row]:
        """Return a row of the bill per job; `before` are those of other kinds."""

    def progress(self, folder: Path, row: Row) -> str:
        """Describe how far a job is, by what it has left in its folder so far: words with a comma
        behind them, or "".
        """
