"""What the Snakefile asks: the plan, what must be over before training starts, and how each run becomes a job.

Everything that knows of Snakemake's `workflow` and `checkpoints` is here. Snakemake makes a finished run again if its
inputs, its params or the text of rule `train` change. How a run is started is in the rule's resources, which it does
not compare: another partition, launcher or checkpoint interval makes no training again.
"""

from __future__ import annotations

import inspect
import os
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ddlbench.audit import _findings
from ddlbench.commands import configuration
from ddlbench.commands.configuration import Settings
from ddlbench.core import layout
from ddlbench.core.record import STEPS, WEIGHTS
from ddlbench.mends import ReleaseError, slurm_states, snakemake_outputs, snakemake_python
from ddlbench.plan import asking, bill, installed, measured, reads, runs, stale
from ddlbench.plan.row import INFER, TRAIN
from ddlbench.preflight import promise
from ddlbench.run import late, reason, survivors
from ddlbench.settings import config as settings
from ddlbench.settings import environment_modules
from ddlbench.settings.config import ConfigError, names_in, one_of
from ddlbench.settings.machine import Machine
from ddlbench.settings.study import Study

# MLPerf's reference convergence points, which the audit reads beside a study's tables.
CONVERGENCE = os.path.relpath(settings.CONFIG / "references" / "mlperf-rcp-resnet50.csv")
# What answers a question and makes nothing that others need (`main.py`).
COMMANDS = ("audit", "compare", "failures", "nodes", "partial", "plan", "status", "verify")
STARTED = time.time()
F = TypeVar("F", bound=Callable[..., Any])


def check_commands(targets: Collection[str]) -> None:
    """Exits with one line about what is no target any more. `targets` is the whole command line."""
    for name in sorted({*COMMANDS} & {*targets}):
        sys.exit(f"{name}: is a command of its own now: ddlbench {name}, with the same --profile and --config")


def check_folder(here: Path) -> None:
    """Exit with one line where this user may not write Snakemake's notes; Snakemake itself ends in a traceback."""
    notes = here / ".snakemake"
    for folder in (notes, notes / "locks") if notes.exists() else (here,):
        if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
            sys.exit(
                f"{folder}: not writable by this user, and Snakemake keeps its notes there. To share a project, its "
                "owner lets a group write (chmod -R g+rwXs, umask 002); or work in a clone of your own"
            )


def check_configfile(path: Path) -> None:
    """Exits with one line about what would hang Snakemake, which reads the file next, or end it in a traceback."""
    if path.exists():  # `--configfile` may name another
        with complaints():
            configuration.load(path)


def read(config: Mapping[str, Any]) -> Settings:
    """The study and the machine that the configuration names, and all runs. Exits with one line about a mistake."""
    with complaints():
        return configuration.read(config)


def check_targets(targets: Collection[str], plan: runs.Plan) -> None:
    """Exits with one line about a file that is asked for and that is not of the configured study, but might be.

    `targets` is the whole command line: Snakemake tells a Snakefile which they are only when it has read it.
    """
    study, figures = plan.study.name, [figure.name for figure in plan.study.figures]
    others = {*names_in(plan.study.path.parent, ".yaml")} - {study}
    for one in targets:
        results, of, folder, name, *_ = (*Path(os.path.normpath(one)).parts, *4 * [""])
        if results != layout.RESULTS.name:
            continue
        if of in others and folder:
            sys.exit(f"{one}: is of study {of}, and the study is {study}; ask with --config study={of}")
        if (of, folder) == (study, "figures") and not any(name.startswith(f"{figure}.") for figure in figures):
            sys.exit(f"{one}: study {study} has no such figure; {one_of(figures, name.split('.')[0])}")
        if of == "inference" and folder not in plan.inferences:
            machine = plan.machine.name
            sys.exit(f"{folder}: is no job of inference of study {study} on machine {machine}, or not any more")


def left_over(study: Study) -> list[str]:
    """A line about each figure in the study's folder that the study does not name, or not any more."""
    folder = Path(layout.figure(study.name, ""))
    named = tuple(f"{figure.name}." for figure in study.figures)
    others = sorted(path for path in folder.glob("[!.]*.csv") if not path.name.startswith(named))
    return [
        f"{path}: study {study.name} has no such figure (any more); remove {path.stem}.*, or name it in {study.path}"
        for path in others
    ]


def written(study: Study, machine: Machine) -> list[str]:
    """The files that people wrote about them."""
    return [os.path.relpath(path) for path in (study.path, settings.CONFIG / "machines" / f"{machine.name}.yaml")]


def others_records(study: Study) -> list[str]:
    """The records of others that the study shows. Exits with one line if there are none."""
    with complaints():
        return configuration.others_records(study)


def audited(tables: Path) -> list[str]:
    """What this call's audit found, for people: errors and warnings; nothing if the audit was made before."""
    table = tables / "audit.csv"
    if not table.exists() or table.stat().st_mtime < STARTED:
        return []
    last = f"all findings, and what was not checked: {table}; docs/audit.md explains the rules"
    return ["", *_findings.lines(_findings.read(table), all_of_them=False), last]


@contextmanager
def complaints() -> Iterator[None]:
    """Turns a ConfigError into the end of this process, with its one line. Snakemake releases its lock all the same.

    Any other exception Snakemake would print with the places in the code that it came from.
    """
    try:
        yield
    except (ConfigError, ReleaseError) as error:
        sys.exit(str(error))


def shell_prefix(machine: Machine, folder: Path) -> str:
    """What every job's shell begins with: it runs the package in this `folder`, with the Python that runs Snakemake.

    Snakemake loads environment modules before it, so that a module's own Python stands behind this one.
    """
    return (
        f"set -euo pipefail; export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH "
        f"PYTHONPATH={shlex.quote(str(folder))}${{{{PYTHONPATH:+:$PYTHONPATH}}}} "
        f"{environment_modules.export(machine.name, machine.modules)}; "
    )


class Training:
    """Rule `train`: its `input`, `threads`, `priority`, `resources` and `spec` are functions of a run's wildcards.

    Made of Snakemake's `workflow` and `checkpoints`, and of what `read` gave.
    """

    def __init__(self, workflow: Any, checkpoints: Any, given: Settings) -> None:
        self.workflow, self.checkpoints, self.given, self.plan = workflow, checkpoints, given, given.plan
        self.preflight = promise.path(self.plan)
        self.new_preflights = _signed(lambda wildcards: [self.preflight] if self.waits else [])
        self._checked = False
        self._done: dict[str, bool] = {}
        # Runs whose trained model is asked by inference, and which therefore leave their weights.
        self.kept = sorted({job.spec.run.id for job in self.plan.inferences.values() if job.spec.trained})
        jobs, queue = self.plan.runs, given.machine.partitions
        with complaints():
            snakemake_python.mend()
            reason.mend_errors()
            snakemake_outputs.mend((TRAIN, INFER), late.earlier, late.print_refusals)
            if workflow.is_main_process:
                os.environ[late.ASKED] = str(STARTED)
            if queue and workflow.is_main_process:
                slurm_states.mend_plugin()
                slurm_states.keep_caches_here(workflow)
            elif queue:
                slurm_states.mend_jobstep()
        self.input = _signed(lambda wildcards: self._when_ready(wildcards.run))
        # A queue gives cores by its own resources, and Snakemake knows no number of them there.
        self.threads = _signed(lambda wildcards: jobs[wildcards.run].threads(None if queue else workflow.cores))
        self.spec = _signed(lambda wildcards: jobs[wildcards.run].spec.to_json())
        self.priority = _signed(lambda wildcards: self._priority(wildcards.run))
        self.resources = {name: self._resource(name) for job in [*jobs.values()][:1] for name in job.resources}
        self.resources["supervision"] = self._supervision()
        # For people, in a dry run and when the job starts.
        self.message = "train {wildcards.run}" + (": {resources.asks}" if queue else "") + "\n$ {resources.launch}"

    @cached_property
    def waits(self) -> bool:
        """Whether a preflight comes before training: there is none of what the study expects of its machine now, or
        data are to be prepared."""
        runs = self.plan.runs
        gone = [run for run, job in runs.items() if job.manifest and not Path(job.manifest).exists()]
        return bool(runs) and (
            not promise.is_current(self.plan) or not all(self.is_done_without_data(run) for run in gone)
        )

    def is_done_without_data(self, run: str) -> bool:
        """Whether a run's record is of today's settings, and the data that it read are gone.

        Snakemake would prepare them, and a dry run would list the run as to be made again. Where no rule makes the
        input of a job, Snakemake takes what the job made for plain files.
        """
        if run not in self._done:
            self._done[run] = self.workflow.is_main_process and self._state_without_data(run) == stale.DONE
        return self._done[run]

    def _state_without_data(self, run: str) -> str | None:
        job, log, dag = self.plan.runs[run], Path(layout.run_log(run)), self.workflow.dag
        if not job.manifest or Path(job.manifest).exists() or not log.exists():
            return None
        wanted = {rule.name for rule in dag.forcerules} | {str(file) for file in (*dag.forcefiles, *dag.targetfiles)}
        if wanted & {TRAIN, str(log), layout.run_steps(run)} or (run in self.kept and not _weights(log).exists()):
            return None
        record = measured.read_measured(log.parent)
        memory = stale.memories([run]).get(run)
        return stale.state(log.parent, job.spec, record.spec if record else None, job.manifest, memory, stale.COMMAND)[
            0
        ]

    def _priority(self, run: str) -> int:
        """Of the jobs that may start Snakemake takes the one with the highest number: the first of the order."""
        last = len(self.plan.order)
        return last + 1 - self.plan.places.get(run, last)

    def _resource(self, name: str) -> Any:
        jobs = self.plan.runs
        return _signed(lambda wildcards, attempt: jobs[wildcards.run].asks(attempt)[name])

    def _supervision(self) -> str:
        """Options of `ddlbench.run` that do not change what is trained."""
        checkpoints = self.given.config["checkpoint"].items()
        options = [f"--checkpoint-{key}={value}" for key, value in checkpoints if value is not None]
        machine = self.given.machine
        options += [f"--silent-s={machine.silent_s:g}", f"--grace-s={machine.grace_s:g}"]
        options += [f"--keep-weights-of={run}" for run in self.kept]
        return shlex.join([f"--preflight={self.preflight}", *options])

    def _when_ready(self, run: str) -> str | list[str]:
        """What a run reads, when all that comes before training is over: what an earlier Snakemake left, the preflight.

        The preflight is no input: as an input, even an ancient one, each new preflight would make finished runs stale
        or hide stale ones (Snakemake 9.27 looks at nothing behind an ancient file that it makes again). It is what
        Snakemake calls a checkpoint: Snakemake asks again when it is there, and then it is forgotten.
        """
        if run not in self.plan.runs:  # a study or a machine file may be edited while jobs wait
            given = self.given
            asked = f"study {given.study.name} on machine {given.machine.name}"
            sys.exit(f"{run}: is not a run of {asked}; was the study edited?")
        if not self._checked:
            self._checked = True
            with complaints():
                installed.check(self.plan, layout.RESULTS)
                if self._starts_jobs():
                    if self.given.machine.partitions:
                        slurm_states.settle_accounting(self.workflow.executor_settings)
                    locks = Path(self.workflow.persistence.path, "locks")
                    survivors.settle(locks, runs.outputs(self.plan) if self.given.machine.partitions else ())
        if self.is_done_without_data(run):
            return f"{self.plan.runs[run].manifest}: is gone, and {run} is done"
        if self.waits and self.workflow.is_main_process:
            # A preflight of something else is made again, whatever Snakemake remembers of it.
            self.workflow.dag.forcefiles.add(self.preflight)
        if self.waits and self._starts_jobs():
            self.checkpoints.preflight.get()
        # A record of other settings is made again, whatever Snakemake remembers of it. So is one without its steps,
        # which Snakemake does not miss, or without the weights that inference wants.
        log = Path(layout.run_log(run))
        beside = [STEPS, *([WEIGHTS] if run in self.kept else [])]
        if self.workflow.is_main_process and (
            stale.is_of_other_settings(log, self.plan.runs[run].spec)
            or (log.exists() and not all(log.with_name(name).exists() for name in beside))
        ):
            self.workflow.dag.forcefiles.add(str(log))
        return self.plan.runs[run].manifest or []

    def _starts_jobs(self) -> bool:
        """Whether this Snakemake will run jobs: not in a dry run, a report, or within a job."""
        w = self.workflow
        return bool(w.is_main_process and w.executor_plugin is not None and not w.dryrun)

    def keep_limit(self) -> None:
        """Before jobs start: exits if the runs of this call would pass `max_gpu_hours`, or their data lie nowhere."""
        jobs = [job for job in self.workflow.dag.needrun_jobs() if job.rule.name in (TRAIN, INFER)]
        made = {job.wildcards.run if job.rule.name == TRAIN else job.wildcards.job for job in jobs}
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
        missing = {run for run in self.plan.runs if not Path(layout.run_log(run)).exists()}
        said = reads.remarks(self.plan, self.given.config["data"]["sources"], missing)
        missing |= {job for job in self.plan.inferences if not Path(layout.inference(job)).exists()}
        try:
            self._check_limit(missing)
        except ConfigError as error:
            said.append(str(error))
        print(*(f"warning: {line}" for line in said), sep="\n", end="\n" * bool(said), file=sys.stderr)


class Serving:
    """Rule `infer`: its inputs, `threads`, `resources` and `spec` are functions of a job's wildcards."""

    def __init__(self, workflow: Any, given: Settings, training: Training) -> None:
        jobs, queue = given.plan.inferences, given.machine.partitions
        self.jobs, self.training = jobs, training
        self.manifest = _signed(lambda wildcards: self._manifest(wildcards.job))
        self.trained: Callable[[Any], str | list[str]] = _signed(lambda wildcards: jobs[wildcards.job].trained or [])
        self.spec = _signed(lambda wildcards: jobs[wildcards.job].spec.to_json())
        # Without a queue the job takes all cores; SLURM allocates through `resources`.
        self.threads = _signed(lambda wildcards: 1 if queue else workflow.cores or 1)

        def asks(name: str) -> Any:
            return _signed(lambda wildcards, attempt: jobs[wildcards.job].asks(attempt)[name])

        self.resources = {name: asks(name) for job in [*jobs.values()][:1] for name in job.resources}

    def _manifest(self, name: str) -> str:
        """What a job reads; of one that is done, and whose data are gone, what no rule makes, as of a run."""
        job, folder = self.jobs[name], Path(layout.inference(name)).parent
        if not self.training.workflow.is_main_process or Path(job.manifest).exists() or not folder.is_dir():
            return job.manifest
        record = asking.read_all(folder.parent).get(name)
        done = job.spec.run.id not in self.training.kept or self.training.is_done_without_data(job.spec.run.id)
        state, _ = asking.state(folder, job.spec, record, done)
        return f"{job.manifest}: is gone, and {name} is done" if state == stale.DONE else job.manifest


def _weights(log: Path) -> Path:
    return log.with_name(WEIGHTS)


def _signed(function: F) -> F:
    """The function, which now keeps its signature: Snakemake 9.27 asks ours for it 7 times per run, 9 us each."""
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return function
