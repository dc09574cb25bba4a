"""How each run, and each job of inference, becomes a job: what rules `train` and `infer` ask, by their wildcards.

Snakemake makes a finished run again if its inputs, its params or the text of rule `train` change. How a run is started
is in the rule's resources, which it does not compare: another partition, launcher or checkpoint interval makes no
training again.
"""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ddlbench.commands.start import Start
from ddlbench.core import layout
from ddlbench.plan import asking, stale

F = TypeVar("F", bound=Callable[..., Any])


class Training:
    """Rule `train`: its `input`, `threads`, `priority`, `resources` and `spec` are functions of a run's wildcards."""

    def __init__(self, start: Start, checkpoints: Any) -> None:
        self.start, self.checkpoints, self.plan = start, checkpoints, start.plan
        jobs, queue = self.plan.runs, start.given.machine.partitions
        self.new_preflights = _signed(lambda wildcards: [start.preflight] if start.waits else [])
        self.input = _signed(lambda wildcards: self._input(wildcards.run))
        # A queue gives cores by its own resources, and Snakemake knows no number of them there.
        self.threads = _signed(lambda wildcards: jobs[wildcards.run].threads(None if queue else start.workflow.cores))
        self.spec = _signed(lambda wildcards: jobs[wildcards.run].spec.to_json())
        self.priority = _signed(lambda wildcards: self._priority(wildcards.run))
        self.resources = {name: _asks(jobs, "run", name) for job in [*jobs.values()][:1] for name in job.resources}
        self.resources["supervision"] = self._supervision()
        # For people, in a dry run and when the job starts.
        self.message = "train {wildcards.run}" + (": {resources.asks}" if queue else "") + "\n$ {resources.launch}"

    def _input(self, run: str) -> str | list[str]:
        """What a run reads. Snakemake asks again once the preflight, for which it raises, is there.

        The preflight is no input: as an input, even an ancient one, each new preflight would make finished runs stale
        or hide stale ones (Snakemake 9.27 looks at nothing behind an ancient file that it makes again). It is what
        Snakemake calls a checkpoint: Snakemake asks again when it is there, and then it is forgotten.
        """
        start = self.start
        if run not in self.plan.runs:  # a study or a machine file may be edited while jobs wait
            asked = f"study {start.given.study.name} on machine {start.given.machine.name}"
            sys.exit(f"{run}: is not a run of {asked}; was the study edited?")
        start.settle()
        if start.is_done_without_data(run):
            return f"{self.plan.runs[run].manifest}: is gone, and {run} is done"
        if start.waits and start.starts_jobs:
            self.checkpoints.preflight.get()
        return self.plan.runs[run].manifest or []

    def _priority(self, run: str) -> int:
        """Of the jobs that may start Snakemake takes the one with the highest number: the first of the order."""
        last = len(self.plan.order)
        return last + 1 - self.plan.places.get(run, last)

    def _supervision(self) -> str:
        """Options of `ddlbench.run` that do not change what is trained."""
        checkpoints = self.start.given.config["checkpoint"].items()
        options = [f"--checkpoint-{key}={value}" for key, value in checkpoints if value is not None]
        machine = self.start.given.machine
        options += [f"--silent-s={machine.silent_s:g}", f"--grace-s={machine.grace_s:g}"]
        options += [f"--keep-weights-of={run}" for run in self.start.kept]
        return shlex.join([f"--preflight={self.start.preflight}", *options])


class Serving:
    """Rule `infer`: its inputs, `threads`, `resources` and `spec` are functions of a job's wildcards."""

    def __init__(self, start: Start) -> None:
        jobs, queue = start.plan.inferences, start.given.machine.partitions
        self.jobs, self.start = jobs, start
        self.manifest = _signed(lambda wildcards: self._manifest(wildcards.job))
        self.trained: Callable[[Any], str | list[str]] = _signed(lambda wildcards: jobs[wildcards.job].trained or [])
        self.spec = _signed(lambda wildcards: jobs[wildcards.job].spec.to_json())
        # Without a queue the job takes all cores; SLURM allocates through `resources`.
        self.threads = _signed(lambda wildcards: 1 if queue else start.workflow.cores or 1)
        self.resources = {name: _asks(jobs, "job", name) for job in [*jobs.values()][:1] for name in job.resources}

    def _manifest(self, name: str) -> str:
        """What a job reads; of one that is done, and whose data are gone, what no rule makes, as of a run."""
        job, folder = self.jobs[name], Path(layout.inference(name)).parent
        if not self.start.workflow.is_main_process or Path(job.manifest).exists() or not folder.is_dir():
            return job.manifest
        record = asking.read_all(folder.parent).get(name)
        done = job.spec.run.id not in self.start.kept or self.start.is_done_without_data(job.spec.run.id)
        state, _ = asking.state(folder, job.spec, record, done)
        return f"{job.manifest}: is gone, and {name} is done" if state == stale.DONE else job.manifest


def _asks(jobs: Mapping[str, Any], wildcard: str, name: str) -> Any:
    """What a job asks of the machine under this name, by attempt."""
    return _signed(lambda wildcards, attempt: jobs[getattr(wildcards, wildcard)].asks(attempt)[name])


def _signed(function: F) -> F:
    """The function, which now keeps its signature: Snakemake 9.27 asks ours for it 7 times per run, 9 us each."""
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return function
