"""What one call of Snakemake settles once: what an earlier one left, which records are made again, limits.

All that changes Snakemake's own state is here, or in `mends/`. It cannot come before the rules are read: only when
Snakemake asks for the first run's input it says whether it will start jobs. `rule.py` asks for it there.
"""

import os
import shlex
import sys
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Any

from ddlbench.analysis import refusals
from ddlbench.commands import terminal
from ddlbench.commands.configuration import Settings
from ddlbench.commands.snakefile import STARTED, complaints
from ddlbench.core import kinds, layout
from ddlbench.core.record import STEPS, WEIGHTS
from ddlbench.mends import slurm_states, snakemake_outputs, snakemake_python, snakemake_until
from ddlbench.plan import bill, installed, reads, runs, stale
from ddlbench.preflight import promise
from ddlbench.run import late, reason, survivors
from ddlbench.settings.config import ConfigError


class Start:
    """Made of Snakemake's `workflow` and of what `read` gave, which it keeps beside them."""

    def __init__(self, workflow: Any, given: Settings) -> None:
        self.workflow, self.given, self.plan = workflow, given, given.plan
        self.preflight = promise.path(self.plan)
        self._settled = False
        self._done: dict[str, bool] = {}
        self.kept = self.plan.weights
        queue = given.machine.partitions
        with complaints():
            snakemake_python.mend()
            reason.mend_errors()
            snakemake_outputs.mend(kinds.rules(), late.earlier, late.print_refusals)
            if workflow.is_main_process:
                os.environ[late.ASKED] = str(STARTED)
                terminal.attach(self.plan, workflow, lambda: self.starts_jobs)
            if queue and workflow.is_main_process:
                slurm_states.mend_plugin()
                slurm_states.keep_caches_here(workflow)
            elif queue:
                slurm_states.mend_jobstep()

    def settle(self) -> None:
        """Once per call: waits for what an earlier Snakemake left, and says what is made again. Exits with one line if
        that cannot be, or if what runs need is not installed."""
        if self._settled:
            return
        self._settled = True
        with complaints():
            installed.check(self.plan, layout.RESULTS)
            if self.starts_jobs:
                queue = self.given.machine.partitions
                if queue:
                    slurm_states.settle_accounting(self.workflow.executor_settings)
                locks = Path(self.workflow.persistence.path, "locks")
                survivors.settle(locks, runs.outputs(self.plan) if queue else ())
        if self.workflow.is_main_process:
            outputs = {run: (layout.run_log(run), layout.run_steps(run)) for run in self.plan.runs}
            snakemake_until.mend(self.workflow.dag)
            snakemake_outputs.forget_marks(self.workflow.persistence, outputs, self._is_sound)
            # Whatever Snakemake remembers of them. A preflight is of something else if training waits for it.
            self.workflow.dag.forcefiles |= {self.preflight} if self.waits else set()
            self.workflow.dag.forcefiles |= {layout.run_log(run) for run in self.plan.runs if self._is_made_again(run)}

    @property
    def starts_jobs(self) -> bool:
        """Whether this Snakemake will run jobs: not in a dry run, a report, or within a job."""
        w = self.workflow
        return bool(w.is_main_process and w.executor_plugin is not None and not w.dryrun)

    def _is_sound(self, run: str) -> bool:
        return late.sound(Path(layout.run(run)), self.plan.runs[run].spec) is not None

    @property
    def supervision(self) -> str:
        """Options of `ddlbench.run` that do not change what is trained."""
        checkpoints = self.given.config["checkpoint"].items()
        options = [f"--checkpoint-{key}={value}" for key, value in checkpoints if value is not None]
        machine = self.given.machine
        options += [f"--silent-s={machine.silent_s:g}", f"--grace-s={machine.grace_s:g}"]
        options += [f"--keep-weights-of={run}" for run in self.kept]
        return shlex.join([f"--preflight={self.preflight}", *options])

    def _is_made_again(self, run: str) -> bool:
        """Whether a record is of other settings, or lacks its steps, which Snakemake does not miss, or the weights that
        another job wants."""
        log = Path(layout.run_log(run))
        beside = [STEPS, *([WEIGHTS] if run in self.kept else [])]
        return log.exists() and (
            stale.is_of_other_settings(log, self.plan.runs[run].spec)
            or not all(log.with_name(name).exists() for name in beside)
        )

    @cached_property
    def waits(self) -> bool:
        """Whether a preflight comes before training: there is none of what the study expects of its machine now, or
        data are to be prepared."""
        runs = self.plan.runs
        gone = [run for run, job in runs.items() if job.manifest and not Path(job.manifest).exists()]
        return bool(runs) and (
            not promise.is_current(self.plan) or not all(self.is_done_without_data(run) for run in gone)
        )

    def is_done_without_data(self, name: str) -> bool:
        """Whether a job's record is of today's settings, and the data that it read are gone.

        Snakemake would prepare them, and a dry run would list the job as to be made again. Where no rule makes the
        input of a job, Snakemake takes what the job made for plain files.
        """
        if name not in self._done:
            self._done[name] = bool(self.workflow.is_main_process) and self._lacks_only_data(name)
        return self._done[name]

    def _lacks_only_data(self, name: str) -> bool:
        job, dag = self.plan.jobs[name], self.workflow.dag
        if not job.manifest or Path(job.manifest).exists():
            return False
        record, *_ = outputs = job.outputs()
        if not record.exists():
            return False
        wanted = {rule.name for rule in dag.forcerules} | {str(file) for file in (*dag.forcefiles, *dag.targetfiles)}
        lacks_weights = name in self.kept and not record.with_name(WEIGHTS).exists()
        if lacks_weights or wanted & {job.rule, *map(str, outputs)}:
            return False
        return self._states[name] == stale.DONE

    @cached_property
    def _states(self) -> dict[str, str]:
        """The state of each job of the plan."""
        memories = stale.memories(self.plan.runs)
        rows = bill.rows(self.plan, self.given.images, layout.RESULTS, memories, stale.COMMAND)
        return {row.run: row.state for row in rows}

    def keep_limit(self) -> None:
        """Before jobs start: exits if the runs of this call would pass `max_gpu_hours`, or their data lie nowhere."""
        wildcards = {kind.RULE: kind.WILDCARD for kind in kinds.every()}
        jobs = [job for job in self.workflow.dag.needrun_jobs() if job.rule.name in wildcards]
        made = {getattr(job.wildcards, wildcards[job.rule.name]) for job in jobs}
        with complaints():
            self._check_limit(made)
            for line in reads.unnamed(self.plan, self.given.config["data"]["sources"], made):
                raise ConfigError(line)

    def _check_limit(self, made: Collection[str]) -> None:
        limit = self.given.config["max_gpu_hours"]
        if limit is not None and made:  # else no record is read
            table = bill.rows(self.plan, self.given.images, layout.RESULTS)
            bill.check_limit([row for row in table if row.run in made], limit)

    def warn(self) -> None:
        """In a dry run, which knows only which runs have no record: say so if they would pass `max_gpu_hours`, or what
        they need is missing."""
        missing = {name for name, job in self.plan.jobs.items() if not job.outputs()[0].exists()}
        said = reads.remarks(self.plan, self.given.config["data"]["sources"], missing)
        tables = Path(layout.table(self.plan.home, "refused") + ".csv")
        made_s = tables.stat().st_mtime if tables.exists() else 0.0
        for log in (Path(layout.run_log(run)) for run in self.plan.runs if run not in missing):
            if log.stat().st_mtime > made_s and (why := refusals.of_seal(log)):  # as tables will say, which are older
                said.append(f"{log}: {why}")
        try:
            self._check_limit(missing)
        except ConfigError as error:
            said.append(str(error))
        print(*(f"warning: {line}" for line in said), sep="\n", end="\n" * bool(said), file=sys.stderr)
