"""How each planned job becomes one of Snakemake's: what the rule of a kind of jobs asks, by its wildcards.

Snakemake makes a finished job again if its inputs, its params or the text of its rule change. How it is started is in
the rule's resources, which it does not compare: another partition, launcher or checkpoint interval makes no training
again.
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from ddlbench.commands.start import Start
from ddlbench.core import kinds
from ddlbench.plan.kinds import Job

F = TypeVar("F", bound=Callable[..., Any])


class Rule:
    """A rule that starts jobs: its `input`, `weights`, `threads`, `priority`, `resources` and `spec` are functions of a
    job's wildcards."""

    def __init__(self, start: Start, rule: str, checkpoints: Any) -> None:
        self.start, self.checkpoints, self.plan, self.kind = start, checkpoints, start.plan, kinds.of_rule(rule)
        jobs, queue = [job for job in self.plan.jobs.values() if job.rule == rule], start.given.machine.partitions
        self.new_preflights = _signed(lambda wildcards: [start.preflight] if start.waits else [])
        self.input = _signed(lambda wildcards: self._input(self._job(wildcards)))
        self.weights = _signed(lambda wildcards: self._weights(self._job(wildcards)))
        # A queue gives cores by its own resources, and Snakemake knows no number of them there.
        self.threads = _signed(lambda wildcards: self._job(wildcards).threads(None if queue else start.workflow.cores))
        self.spec = _signed(lambda wildcards: self._job(wildcards).spec.to_json())
        self.priority = _signed(lambda wildcards: self._priority(getattr(wildcards, self.kind.WILDCARD)))
        self.resources = {name: self._asks(name) for job in jobs[:1] for name in job.resources}
        # For people, in a dry run and when the job starts.
        self.asks = ": {resources.asks}" if queue else ""

    def _job(self, wildcards: Any) -> Job[Any]:
        name = getattr(wildcards, self.kind.WILDCARD)
        if name not in self.plan.jobs:  # a study or a machine file may be edited while jobs wait
            asked = f"study {self.start.given.study.name} on machine {self.start.given.machine.name}"
            sys.exit(f"{name}: is not a {''.join(self.kind.NOUN)} of {asked}; was the study edited?")
        return self.plan.jobs[name]

    def _asks(self, name: str) -> Any:
        """What a job asks of the machine under this name, by attempt."""
        return _signed(lambda wildcards, attempt: self._job(wildcards).asked(attempt)[name])

    def _input(self, job: Job[Any]) -> str | list[str]:
        """What a job reads. Snakemake asks again once the preflight, for which it raises, is there.

        The preflight is no input: as an input, even an ancient one, each new preflight would make finished runs stale
        or hide stale ones (Snakemake 9.27 looks at nothing behind an ancient file that it makes again). It is what
        Snakemake calls a checkpoint: Snakemake asks again when it is there, and then it is forgotten.
        """
        start, name = self.start, job.spec.id
        start.settle()
        if start.is_done_without_data(name):
            return f"{job.manifest}: is gone, and {name} is done"
        if start.waits and start.starts_jobs:
            self.checkpoints.preflight.get()
        return job.manifest or []

    def _weights(self, job: Job[Any]) -> str | list[str]:
        """The record of the run whose weights a job takes."""
        return str(self.plan.jobs[job.weights_of].outputs()[0]) if job.weights_of else []

    def _priority(self, name: str) -> int:
        """Of the jobs that may start Snakemake takes the one with the highest number: the first of the order."""
        last = len(self.plan.order)
        return last + 1 - self.plan.places.get(name, last)


def _signed(function: F) -> F:
    """The function, which now keeps its signature: Snakemake 9.27 asks ours for it 7 times per run, 9 us each."""
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return function
