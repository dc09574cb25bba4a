"""The start of one call of Snakemake (`Start`), once before any job starts: what an earlier one left,
and which records are made again.

All that changes Snakemake's own state is here, or in `patches/`.
"""

import os
import shlex
import sys
from collections.abc import Collection
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from ddlbench.analysis import refusals
from ddlbench.commands import terminal
from ddlbench.commands.configuration import Settings
from ddlbench.commands.snakefile import STARTED, complaints
from ddlbench.core import kinds, layout
from ddlbench.core.record import STEPS, WEIGHTS
from ddlbench.patches import (
    slurm_plugin,
    snakemake_outputs,
    snakemake_params,
    snakemake_python,
    snakemake_scripts,
    snakemake_sigterm,
    snakemake_until,
)
from ddlbench.plan import bill, reads, runs, stale
from ddlbench.plan.values import Job
from ddlbench.preflight import promise
from ddlbench.run import hold, reason, survivors, turn
from ddlbench.settings.config import ConfigError
from ddlbench.slurm import step


class Start:
    """The start of one call of Snakemake, which settles once what an earlier one left, which
    records are made again, and limits.

    It cannot come before the rules are read: only when Snakemake asks for the first run's input
    does it say whether it will start jobs. It is made of Snakemake's `workflow` and of what `read`
    gave.
    """

    def __init__(self, workflow: Any, given: Settings) -> None:
        self.workflow, self.given, self.plan = workflow, given, given.plan
        self.preflight = promise.path(self.plan)
        self._settled = False
        self._done: dict[str, bool] = {}
        self._begun = layout.begun()
        self.with_weights = self.plan.weights
        self.parts = runs.parts(self.plan)
        queue = self.plan.machine.partitions
        with complaints():
            snakemake_python.apply()
            reason.patch_errors()
            snakemake_outputs.apply(kinds.rules(), hold.displaced_log, hold.print_refusals)
            snakemake_params.apply(kinds.rules(), stale.is_same_run)
            snakemake_scripts.apply()
            snakemake_sigterm.apply()
            if workflow.is_main_process:
                os.environ[hold.ASKED] = str(STARTED)
            if queue and workflow.is_main_process:
                slurm_plugin.patch_plugin()
                slurm_plugin.keep_caches_here(workflow)
            elif queue:
                slurm_plugin.patch_jobstep()

    def settle(self) -> None:
        """Wait for what an earlier Snakemake left, and print what is made again; once per call.

        Exit with one line if that cannot be, or if what runs need is not installed.
        """
        if self._settled:
            return
        self._settled = True
        with complaints():
            reads.check_software(self.plan, layout.RESULTS)
            if terminal.starts_jobs(self.workflow):
                queue = self.plan.machine.partitions
                if queue:
                    slurm_plugin.settle_accounting(self.workflow.executor_settings)
                locks = Path(self.workflow.persistence.path, "locks")
                folders = [] if queue else [job.folder() for job in self.plan.jobs.values()]
                survivors.settle(locks, runs.outputs(self.plan) if queue else (), folders)
                if not queue and (other := turn.holder()):
                    turn.say(turn.notice(other))
        self._begun = layout.begun()  # that may have taken hours
        if self.workflow.is_main_process:

            def is_sound(run: str) -> bool:
                return (
                    hold.sound_events(Path(layout.run(run)), self.plan.runs[run].spec) is not None
                )

            outputs = {run: (layout.run_log(run), layout.run_steps(run)) for run in self._there}
            snakemake_until.apply(self.workflow.dag)
            snakemake_outputs.forget_marks(self.workflow.persistence, outputs, is_sound)
            # Whatever Snakemake remembers of them. A preflight is of something else if training
            # waits for it.
            self.workflow.dag.forcefiles |= {self.preflight} if self.waits else set()
            self.workflow.dag.forcefiles |= {
                layout.run_log(run) for run in self._there if self._is_made_again(run)
            }
            self.workflow.dag.forcefiles |= self._to_be_read_again()

    def _to_be_read_again(self) -> set[str]:
        """Return the files of digests of records whose steps are no longer those of their logs.

        Rule records has no steps among its inputs: for large files Snakemake compares times alone.
        """
        changed_s = {}
        for run in self._there:
            with suppress(OSError):
                changed_s[run] = Path(layout.run_steps(run)).stat().st_mtime
        files = {}
        for part, of_part in self.parts.runs.items():
            path = layout.records(self.plan.home, part)
            with suppress(OSError):
                made_s = Path(path).stat().st_mtime
                files[path] = [run for run in of_part if changed_s.get(run, 0.0) > made_s]
        looked_at = {run for newer in files.values() for run in newer}
        other = {run for run in looked_at if stale.has_other_steps(Path(layout.run(run)))}
        return {path for path, newer in files.items() if not other.isdisjoint(newer)}

    def forget_parts(self) -> None:
        """Remove, before jobs start, digests of sets of runs that the plan does not have any
        more.
        """
        for path in Path(layout.records(self.plan.home, "any")).parent.glob("[!.]*.csv"):
            if path.stem not in self.parts.runs:
                path.unlink(missing_ok=True)
                Path(layout.study_log(self.plan.home, f"records-{path.stem}")).unlink(
                    missing_ok=True
                )

    @property
    def _there(self) -> list[str]:
        """Return the runs of which anything is there."""
        return [run for run in self.plan.runs if run in self._begun]

    def _is_there(self, name: str, job: Job[Any]) -> bool:
        """Tell whether a job has left its record."""
        return (name not in self.plan.runs or name in self._begun) and job.outputs()[0].exists()

    @property
    def supervision(self) -> str:
        """Return options of `ddlbench.run` that do not change what is trained."""
        checkpoints = self.given.config["checkpoint"].items()
        options = [f"--checkpoint-{key}={value}" for key, value in checkpoints if value is not None]
        machine = self.plan.machine
        options += [f"--silent-s={machine.silent_s:g}", f"--grace-s={machine.grace_s:g}"]
        options += [f"--keep-weights-of={run}" for run in self.with_weights]
        return shlex.join([f"--preflight={self.preflight}", *options])

    def _is_made_again(self, run: str) -> bool:
        """Tell whether a record is of other settings, or lacks its steps, which Snakemake does not
        miss, or the weights that another job wants.
        """
        log = Path(layout.run_log(run))
        beside = [STEPS, *([WEIGHTS] if run in self.with_weights else [])]
        return log.exists() and (
            stale.is_of_other_settings(log, self.plan.runs[run].spec)
            or not all(log.with_name(name).exists() for name in beside)
        )

    @cached_property
    def waits(self) -> bool:
        """Tell whether a preflight comes before training: there is none of what the study expects
        of its machine now, or data are to be prepared.
        """
        runs = self.plan.runs
        manifests = {
            job.manifest: Path(job.manifest).exists() for job in runs.values() if job.manifest
        }
        gone = [run for run, job in runs.items() if job.manifest and not manifests[job.manifest]]
        return bool(runs) and (
            not promise.is_current(self.plan) or not all(map(self.is_done_without_data, gone))
        )

    def is_done_without_data(self, name: str) -> bool:
        """Tell whether a job's record is of today's settings, and the data that it read are gone.

        Snakemake would prepare them, and a dry run would list the job as to be made again. Where no
        rule makes the input of a job, Snakemake takes what the job made for plain files.
        """
        if name not in self._done:
            self._done[name] = bool(self.workflow.is_main_process) and self._lacks_only_data(name)
        return self._done[name]

    def _lacks_only_data(self, name: str) -> bool:
        job, dag = self.plan.jobs[name], self.workflow.dag
        if not job.manifest or not self._is_there(name, job) or Path(job.manifest).exists():
            return False
        record, *_ = outputs = job.outputs()
        wanted = {rule.name for rule in dag.forcerules} | {
            str(file) for file in (*dag.forcefiles, *dag.targetfiles)
        }
        lacks_weights = name in self.with_weights and not record.with_name(WEIGHTS).exists()
        if lacks_weights or wanted & {job.rule, *map(str, outputs)}:
            return False
        return self._states[name] == stale.DONE

    @cached_property
    def _states(self) -> dict[str, str]:
        metadata = stale.metadata_of(self.plan.runs)
        rows = bill.rows(self.plan, self.given.images, layout.RESULTS, metadata, stale.COMMAND)
        return {row.run: row.state for row in rows}

    def keep_limit(self) -> None:
        """Exit, before jobs start, if the runs of this call would exceed `max_gpu_hours`, if the
        place of their data is unknown, or if a profile is missing that submits them.
        """
        wildcards = {rule.name: rule.wildcard for rule in kinds.job_rules()}
        needed = [*self.workflow.dag.needrun_jobs()]
        jobs = [job for job in needed if job.rule.name in wildcards]
        to_make = {getattr(job.wildcards, wildcards[job.rule.name]) for job in jobs}
        with complaints():
            if jobs or any(job.rule.name == "preflight" for job in needed):
                self._check_executor()
            self._check_limit(to_make)
            for line in reads.unnamed(self.plan, self.given.config["data"]["sources"], to_make):
                raise ConfigError(line)

    def _check_executor(self) -> None:
        """Raise ConfigError if ranks would be started from a login node: srun would ask for nodes
        by itself, without the limits, flags and exclusive nodes that jobs ask for.
        """
        machine = self.plan.machine
        if machine.launcher == "slurm" and self.workflow.local_exec and step.job() is None:
            raise ConfigError(
                f"config/machines/{machine.name}.yaml: launcher: slurm needs a profile that submits"
                " jobs: --profile profiles/slurm, or yours"
            )

    def _check_limit(self, runs: Collection[str]) -> None:
        limit = self.given.config["max_gpu_hours"]
        if limit is not None and runs:  # else no record is read
            table = bill.rows(self.plan, self.given.images, layout.RESULTS)
            bill.check_limit([row for row in table if row.run in runs], limit)

    def warn(self) -> None:
        """Warn in a dry run, which knows only which runs have no record, if they would exceed
        `max_gpu_hours`, or what they need is missing.
        """
        missing = {name for name, job in self.plan.jobs.items() if not self._is_there(name, job)}
        remarks = reads.remarks(self.plan, self.given.config["data"]["sources"], missing)
        tables = Path(layout.table(self.plan.home, "refused") + ".csv")
        made_s = tables.stat().st_mtime if tables.exists() else 0.0
        for log in (Path(layout.run_log(run)) for run in self.plan.runs if run not in missing):
            if log.stat().st_mtime > made_s and (
                why := refusals.of_seal(log)
            ):  # as tables will say, which are older
                remarks.append(f"{log}: {why}")
        try:
            self._check_limit(missing)
        except ConfigError as error:
            remarks.append(str(error))
        print(
            *(f"warning: {line}" for line in remarks),
            sep="\n",
            end="\n" * bool(remarks),
            file=sys.stderr,
        )
