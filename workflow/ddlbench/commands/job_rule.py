"""What a rule whose jobs are runs asks of each job (`JobRule`): its input, command, resources."""

import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from ddlbench.commands import terminal
from ddlbench.commands.start import Start
from ddlbench.core import kinds
from ddlbench.plan.values import Job

F = TypeVar("F", bound=Callable[..., Any])


class JobRule:
    """A rule that starts jobs: its `input`, `weights`, `threads`, `priority`, `resources` and
    `spec` are functions of a job's wildcards.

    Snakemake makes a finished job again if its inputs, its params or the text of its rule change.
    How it is started is in the rule's resources, which it does not compare: another partition,
    launcher or checkpoint interval makes no training again.
    """

    def __init__(self, start: Start, rule: str, checkpoints: Any) -> None:
        self.start, self.checkpoints, self.plan, self.rule = (
            start,
            checkpoints,
            start.plan,
            kinds.of_rule(rule),
        )

        def weights(job: Job[Any]) -> str | list[str]:
            return str(self.plan.jobs[job.weights_of].outputs()[0]) if job.weights_of else []

        def asks(name: str) -> Any:
            return _signed(lambda wildcards, attempt: self._job(wildcards).asked(attempt)[name])

        jobs, queue = (
            [job for job in self.plan.jobs.values() if job.rule == rule],
            start.plan.machine.partitions,
        )
        self.new_preflights = _signed(lambda wildcards: [start.preflight] if start.waits else [])
        self.input = _signed(lambda wildcards: self._input(self._job(wildcards)))
        self.weights = _signed(lambda wildcards: weights(self._job(wildcards)))
        # A queue gives cores by its own resources, and Snakemake knows no number of them there.
        self.threads = _signed(
            lambda wildcards: self._job(wildcards).threads(None if queue else start.workflow.cores)
        )
        self.spec = _signed(lambda wildcards: self._job(wildcards).spec.to_json())
        self.priority = _signed(
            lambda wildcards: self._priority(getattr(wildcards, self.rule.wildcard))
        )
        self.resources = {name: asks(name) for job in jobs[:1] for name in job.resources}
        # For people, in a dry run and when the job starts.
        self.asks = ": {resources.asks}" if queue else ""

    def _job(self, wildcards: Any) -> Job[Any]:
        name = getattr(wildcards, self.rule.wildcard)
        if name not in self.plan.jobs:  # a study or a machine file may be edited while jobs wait
            asked = f"study {self.plan.study.name} on machine {self.plan.machine.name}"
            sys.exit(
                f"{name}: is not a {''.join(self.rule.noun)} of {asked}; was the study edited?"
            )
        return self.plan.jobs[name]

    def _input(self, job: Job[Any]) -> str | list[str]:
        """Return what a job reads. Snakemake asks again once the preflight, for which it raises, is
        there.

        The preflight is no input: as an input, even an ancient one, each new preflight would make
        finished runs stale or hide stale ones (Snakemake 9.27 looks at nothing behind an ancient
        file that it makes again). It is what Snakemake calls a checkpoint: Snakemake asks again
        when it is there, and then it is forgotten.
        """
        start, name = self.start, job.spec.id
        start.settle()
        if start.is_done_without_data(name):
            return f"{job.manifest}: is gone, and {name} is done"
        if terminal.starts_jobs(start.workflow) and start.waits:
            self.checkpoints.preflight.get()
        return job.manifest or []

    def _priority(self, name: str) -> int:
        """Return the job's priority. Among the jobs that are ready, Snakemake takes the one
        with the highest number: the first of the order.
        """
        last = len(self.plan.order)
        return last + 1 - self.plan.places.get(name, last)


def _signed(function: F) -> F:
    """Return the function with its signature set, so that Snakemake knows the parameters. Otherwise
    it would look for them 7 times per run.
    """
    from snakemake.common import overwrite_function_params

    overwrite_function_params(function, inspect.signature(function).parameters)
    return function
