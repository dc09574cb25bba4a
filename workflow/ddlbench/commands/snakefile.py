"""What the Snakefile asks: before it reads its rules, once before any job starts (`Start`), of each
job (`JobRule`), and what it prints at its end.

All that changes Snakemake's own state is here, or in `patches/`.
"""

import atexit
import inspect
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from ddlbench.analysis import refusals
from ddlbench.analysis.published_operations import PUBLISHED
from ddlbench.audit import SEVERITIES, finding_rows
from ddlbench.commands import terminal
from ddlbench.commands.configuration import Settings
from ddlbench.core import gone, kinds, layout, registry
from ddlbench.core.record import STEPS, WEIGHTS
from ddlbench.patches import (
    ReleaseError,
    slurm_plugin,
    snakemake_outputs,
    snakemake_params,
    snakemake_python,
    snakemake_scripts,
    snakemake_until,
)
from ddlbench.plan import bill, reads, rounds, runs, stale
from ddlbench.plan.values import Job, Plan
from ddlbench.preflight import promise
from ddlbench.run import hold, reason, survivors, turn
from ddlbench.settings import config as settings
from ddlbench.settings import environment_modules
from ddlbench.settings.config import ConfigError, names_in, one_of
from ddlbench.settings.machine import Machine

CONVERGENCE = os.path.relpath(settings.CONVERGENCE)  # as Snakemake wants paths
OPERATIONS = os.path.relpath(PUBLISHED)
STARTED = time.time()
F = TypeVar("F", bound=Callable[..., Any])


def check_gone(targets: Collection[str]) -> None:
    """Exit with one line about targets that no longer exist.

    `targets` is the complete command line.
    """
    for name in targets:
        if name in gone.TARGETS:
            sys.exit(f"{name}: {gone.TARGETS[name]}")


def check_folder(here: Path) -> None:
    """Exit with one line where Snakemake's notes cannot be written; Snakemake itself ends in a
    traceback.
    """
    disk = os.statvfs(here)
    if disk.f_bavail == 0 < disk.f_blocks:  # some file systems count nothing
        sys.exit(
            f"{here}: its disk is full, and Snakemake keeps its state there; free disk space, and"
            " start again"
        )
    notes = here / ".snakemake"
    for folder in (notes, notes / "locks") if notes.exists() else (here,):
        if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
            sys.exit(
                f"{folder}: not writable by this user, and Snakemake keeps its state there. To"
                " share a project, its owner lets a group write (chmod -R g+rwXs, umask 002); or"
                " work in a clone of your own"
            )


def check_targets(targets: Collection[str], plan: Plan) -> None:
    """Exit with one line about a requested file that belongs, or may belong, to another study or
    machine. `targets` is the whole command line: Snakemake tells a Snakefile which they are only
    when it has read it.
    """
    study, machine, figures = (
        plan.study.name,
        plan.machine.name,
        [figure.name for figure in plan.study.figures],
    )
    studies = names_in(plan.study.path.parent, ".yaml")
    for target in targets:
        results, named, place, folder, name, *_ = (*Path(os.path.normpath(target)).parts, *5 * [""])
        if results != layout.RESULTS.name:
            continue
        if named in studies and place and (named, place) != (study, machine):
            if place not in names_in(settings.CONFIG / "machines", ".yaml"):
                sys.exit(
                    f"{target}: results of a study lie under its machine:"
                    f" results/{named}/<machine>/..."
                )
            asked = f"ask with --config study={named} machine={place}"
            sys.exit(
                f"{target}: is of study {named} on {place}, and the study is {study} on {machine};"
                f" {asked}"
            )
        if (
            folder == "figures"
            and named == study
            and not any(name.startswith(f"{figure}.") for figure in figures)
        ):
            sys.exit(
                f"{target}: study {study} has no such figure; {one_of(figures, name.split('.')[0])}"
            )
        for rule in kinds.non_training():
            if named == rule.folder and place not in plan.non_training:
                asked = f"{''.join(rule.noun)} of study {study} on machine {machine}"
                sys.exit(f"{place}: is no {asked}; was the study edited?")


def own_runs(arguments: Sequence[str]) -> set[str] | None:
    """Return the runs (ids) that this Snakemake makes within a job; None in the user's own
    Snakemake, and in a job that makes anything else. All nodes of a job wait while it reads of
    other runs, and it makes use of none.

    `arguments` is the command line, in which jobs are `--target-jobs train:run=<id>`: Snakemake
    tells a Snakefile only later.
    """
    if "--target-jobs" not in arguments:
        return None
    after = arguments[arguments.index("--target-jobs") + 1 :]
    targets = [
        target.partition(":") for target in takewhile(lambda word: not word.startswith("--"), after)
    ]
    begins = {
        rule: f"{kinds.of_rule(rule).wildcard}=" for rule in kinds.rules() if kinds.trains(rule)
    }
    if not targets or not all(
        rule in begins and job.startswith(begins[rule]) for rule, _, job in targets
    ):
        return None
    return {job.removeprefix(begins[rule]) for rule, _, job in targets}


def left_over(plan: Plan) -> list[str]:
    """Return a line about each existing figure that the study does not name (any more)."""
    study, folder = plan.study, Path(layout.figure(plan.home, ""))
    named = tuple(f"{figure.name}." for figure in study.figures)
    drawn = [path for path in folder.glob("[!.]*.csv") if not path.name.endswith(".runs.csv")]
    others = sorted(path for path in drawn if not path.name.startswith(named))
    return [
        f"{path}: study {study.name} has no such figure (any more); remove {path.stem}.*, or name"
        f" it in {study.path}"
        for path in others
    ]


def written(plan: Plan) -> list[str]:
    """Return the files of the study and of the machine."""
    machine = settings.CONFIG / "machines" / f"{plan.machine.name}.yaml"
    return [os.path.relpath(path) for path in (plan.study.path, machine)]


def said(plan: Plan) -> str:
    """Return a digest of the contents of the study and machine files, without comments."""
    text = json.dumps([settings.read_yaml(Path(path)) for path in written(plan)], default=str)
    return sha256(text.encode()).hexdigest()[:16]


def published(plot: str) -> list[str]:
    """Return the files of published numbers that a figure's tables have beside ours."""
    return [OPERATIONS] if "operations" in registry.constant("figures", plot, "TABLES") else []


def audited(tables: Path) -> list[str]:
    """Return what this call's audit found, for people: errors, and rules that warn; nothing if it
    was made before.
    """
    table = tables / "audit.csv"
    if not table.exists() or table.stat().st_mtime < STARTED:
        return []
    rows = finding_rows.read(table)
    errors, warnings = ([row for row in rows if row["severity"] == name] for name in SEVERITIES[:2])
    warned = ", ".join(dict.fromkeys(row["rule"] for row in warnings))
    lines = ["", f"audit: {finding_rows.summary(rows)}", *finding_rows.lines(errors)[1:]]
    lines += [f"warnings: {warned}"] * bool(warned)
    return [*lines, "all findings: ddlbench audit; docs/audit.md explains the rules"]


def go_on(workflow: Any, plan: Plan) -> None:
    """Say what the last look at a study says that makes repeats until it is decided; and if it asks
    for another round, go on with it: the same command line again, in this process, with the plan
    that now has these runs.

    A call that forces jobs would force them in each round, and another program's call of Snakemake
    is not ours to repeat: both are told how to go on.
    """
    path = Path(layout.rounds(plan.home))
    if (
        plan.study.until is None
        or workflow.touch
        or not path.exists()
        or path.stat().st_mtime < STARTED
    ):
        return
    looks = rounds.read(path)
    print(*rounds.told(looks, plan.study.until), sep="\n", file=sys.stderr)
    if rounds.asked(looks) <= {*plan.runs}:
        return
    given = workflow.dag_settings
    if given.forceall or given.forcetargets or given.forcerun:
        print("to make the next round: call snakemake again, without forcing", file=sys.stderr)
        return
    if not is_command():
        study = f"study={plan.study.name} machine={plan.machine.name}"
        print(
            f"to make the next round: run this workflow again, or: snakemake --config {study}",
            file=sys.stderr,
        )
        return
    workflow.persistence.unlock()
    # what the end of a process does: the mark that it is at work, temporary folders
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "snakemake", *sys.argv[1:]])


def is_command() -> bool:
    """Return whether this process is Snakemake's command, under whatever name: a script that does
    nothing but call Snakemake's main function with the words of its command line. A program that
    uses Snakemake's API, or gives words of its own, is not.
    """
    from snakemake.cli import main

    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code is main.__code__:
            caller = frame.f_back
            is_script = caller is not None and caller.f_code.co_name == "<module>"
            is_first = caller is not None and caller.f_globals.get("__name__") == "__main__"
            return is_script and is_first and frame.f_locals.get("argv") is None
        frame = frame.f_back
    return False


@contextmanager
def complaints() -> Iterator[None]:
    """Turn a ConfigError into the end of this process, with its line.

    Snakemake releases its lock all the same. Any other exception Snakemake would print with the
    places in the code that it came from.
    """
    try:
        yield
    except (ConfigError, ReleaseError) as error:
        sys.exit(str(error))


def shell_prefix(machine: Machine, folder: Path) -> str:
    """Return how every job's shell begins: it runs the package in this `folder`, with the Python
    that runs Snakemake.

    Snakemake loads environment modules before it, so that a module's own Python stands behind this
    one. PYTHONPATH names this folder, though the package is installed: clones may share an
    environment, whose package is installed from one of them, and where another workflow uses this
    one as a module the package lies in Snakemake's cache. PYTHONPATH names nothing else: a module's
    bundle for another Python would come before this environment's packages.

    `python` is a function: of a process that is killed the shell prints its line as it stands here,
    into the job's log, and not the whole command with all settings on the terminal.
    """
    return (
        f"set -euo pipefail; export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH "
        f"PYTHONPATH={shlex.quote(str(folder))} "
        f"{environment_modules.export(machine.name, machine.modules)}; "
        'python() if true; then command python "$@"; fi; '  # braces are Snakemake's
    )


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
        self.kept = self.plan.weights
        self.parts = runs.parts(self.plan)
        queue = self.plan.machine.partitions
        with complaints():
            snakemake_python.apply()
            reason.patch_errors()
            snakemake_outputs.apply(kinds.rules(), hold.earlier, hold.print_refusals)
            snakemake_params.apply(kinds.rules(), stale.is_same_run)
            snakemake_scripts.apply()
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
                return hold.sound(Path(layout.run(run)), self.plan.runs[run].spec) is not None

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
        """Runs of which anything is there."""
        return [run for run in self.plan.runs if run in self._begun]

    def _is_there(self, name: str, job: Job[Any]) -> bool:
        """Whether a job has left its record."""
        return (name not in self.plan.runs or name in self._begun) and job.outputs()[0].exists()

    @property
    def supervision(self) -> str:
        """Return options of `ddlbench.run` that do not change what is trained."""
        checkpoints = self.given.config["checkpoint"].items()
        options = [f"--checkpoint-{key}={value}" for key, value in checkpoints if value is not None]
        machine = self.plan.machine
        options += [f"--silent-s={machine.silent_s:g}", f"--grace-s={machine.grace_s:g}"]
        options += [f"--keep-weights-of={run}" for run in self.kept]
        return shlex.join([f"--preflight={self.preflight}", *options])

    def _is_made_again(self, run: str) -> bool:
        """Tell whether a record is of other settings, or lacks its steps, which Snakemake does not
        miss, or the weights that another job wants.
        """
        log = Path(layout.run_log(run))
        beside = [STEPS, *([WEIGHTS] if run in self.kept else [])]
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
        lacks_weights = name in self.kept and not record.with_name(WEIGHTS).exists()
        if lacks_weights or wanted & {job.rule, *map(str, outputs)}:
            return False
        return self._states[name] == stale.DONE

    @cached_property
    def _states(self) -> dict[str, str]:
        memories = stale.memories(self.plan.runs)
        rows = bill.rows(self.plan, self.given.images, layout.RESULTS, memories, stale.COMMAND)
        return {row.run: row.state for row in rows}

    def keep_limit(self) -> None:
        """Exit, before jobs start, if the runs of this call would exceed `max_gpu_hours`, or if the
        place of their data is unknown.
        """
        wildcards = {rule.name: rule.wildcard for rule in kinds.job_rules()}
        jobs = [job for job in self.workflow.dag.needrun_jobs() if job.rule.name in wildcards]
        to_make = {getattr(job.wildcards, wildcards[job.rule.name]) for job in jobs}
        with complaints():
            self._check_limit(to_make)
            for line in reads.unnamed(self.plan, self.given.config["data"]["sources"], to_make):
                raise ConfigError(line)

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
        """Return the job's priority. Of the jobs that may start Snakemake takes the one with the
        highest number: the first of the order.
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
