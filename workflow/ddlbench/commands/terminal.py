"""What a terminal, a pipe or a file gets while a study runs: a line of ours after each run.
Snakemake's own lines go to its log. Somebody who asks for more (`--verbose`, `--printshellcmds`)
sees them too. Errors are shown always, those of jobs in a line of ours with their reason.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

from ddlbench.commands import dry_run
from ddlbench.core import kinds, layout
from ddlbench.core.files import read_bytes, sha256
from ddlbench.core.formatting import count_of, rounded, worker
from ddlbench.core.recipe import Recipe
from ddlbench.core.record import MLLOG, SUMMARY
from ddlbench.core.roles import FOLLOWS, WATCHED
from ddlbench.core.spec import ROLES, RunSpec
from ddlbench.patches import snakemake_lines
from ddlbench.patches.snakemake_lines import Message
from ddlbench.run import reason

# A terminal hears that these begin: what comes before runs, and a question that computes.
BEGIN = ("prepare", "preflight", "predict")


class Lines:
    """The lines of Snakemake's terminal: which are let through, and a line of our own for each run
    that ends.
    """

    plan: Any  # set by whoever makes it: Snakemake speaks before

    def __init__(
        self, workflow: Any, starts: Callable[[], bool], whole: bool, sums_up: bool = False
    ) -> None:
        """Make it. `starts` tells whether this call starts jobs. With `whole`, all lines of
        Snakemake are shown too; with `sums_up`, this is a dry run that gets a summary.
        """
        self.workflow, self.starts, self.whole, self.sums_up = workflow, starts, whole, sums_up
        self.rules = {rule.name: rule.wildcard for rule in kinds.job_rules()}
        self.names: dict[int, str] = {}
        self.failed: set[str] = set()
        self.left: set[str] = (
            set()
        )  # ended without a record, and have not failed: stopped, or made by another
        self.others: set[str] | None = None  # runs without a record that this call does not make
        self.varies: tuple[str, ...] | None = None  # settings in which runs of the study differ
        self.ended, self.began = 0, 0.0
        self.summed_up = False  # a dry run has printed what would run

    def shown(self, line: Message) -> bool:
        """Tell whether Snakemake's line is shown."""
        if not self.starts():
            return self._shown_where_none_starts(line)
        if line.what == "started" and line.rule in self.rules:
            self.names[line.job] = str(line.wildcards.get(self.rules[line.rule], ""))
            self.began = self.began or time.time()
        elif line.what == "started" and line.rule in BEGIN and not self.whole:
            print(f"{line.text} ...", file=sys.stderr, flush=True)
        elif line.what in ("ended", "broken") and line.job in self.names:
            self.say(self.names[line.job], line.what == "broken")
        elif line.what == "broken" and not self.whole:
            log = f"; log: {line.log}" if line.log else ""
            print(f"{line.rule or 'a job'} failed: {line.text}{log}", file=sys.stderr, flush=True)
        elif line.what == "nothing":
            print(
                line.text,
                *answers(self.plan),
                *page(self.plan),
                sep="\n",
                file=sys.stderr,
                flush=True,
            )
            return False
        return self.whole or line.what in ("error", "ending")

    def _shown_where_none_starts(self, line: Message) -> bool:
        """Tell whether Snakemake's line is shown where no jobs are started. Our summary is printed
        in place of the first count of jobs.
        """
        if self.whole or not self.sums_up:
            return self.whole or line.what != "early"
        if line.what == "counted" and not self.summed_up:
            self.summed_up = True
            print(*dry_run.lines(self.plan, self._to_make()), sep="\n", flush=True)
        return line.what in ("error", "warning", "nothing")

    def _to_make(self) -> list[dry_run.ToMake]:
        """Return the jobs that would run, in the order of the rules, without rules such as all,
        which do nothing.
        """
        places = {rule.name: place for place, rule in enumerate(self.workflow.rules)}
        jobs = [job for job in self.workflow.dag.needrun_jobs() if not job.is_norun]
        jobs.sort(key=lambda job: places[job.rule.name])
        return [
            dry_run.ToMake(
                job.rule.name,
                " ".join(map(str, job.wildcards_dict.values())),
                snakemake_lines.reason_of(self.workflow.dag, job),
            )
            for job in jobs
        ]

    def say(self, name: str, broken: bool) -> None:
        """Print the line about a run that has ended, and under it why there is no record of it."""
        end = reason.end_of(self.plan.jobs[name].folder(layout.RESULTS)) if broken else None
        self.failed.discard(name)
        self.left.discard(name)
        if end:
            (self.failed if end.failed else self.left).add(name)
        self.left = {run for run in self.left if not self.plan.jobs[run].outputs()[0].exists()}
        self.ended += not broken
        to_make = [job for job in self.workflow.dag.needrun_jobs() if job.rule.name in self.rules]
        needed = {str(getattr(job.wildcards, self.rules[job.rule.name])) for job in to_make} | {
            name
        }
        if self.others is None:
            jobs = self.plan.jobs.items()
            self.others = {
                run for run, job in jobs if run not in needed and not job.outputs()[0].exists()
            }
        ahead = needed - {name} - self.failed
        columns = shutil.get_terminal_size().columns if sys.stderr.isatty() else 0
        rest = ahead | self.left | self.others - self.failed
        if self.varies is None:
            self.varies = varying([job.spec for job in self.plan.jobs.values()])
        end_s = self._end(len(ahead))
        text = line(
            self.plan, name, rest, self.failed, end_s, columns, made=not broken, varies=self.varies
        )
        print(
            text,
            *([f"    {name}: {end.words}"] if end else []),
            sep="\n",
            file=sys.stderr,
            flush=True,
        )

    def _end(self, ahead: int) -> float | None:
        """Estimate when all will have ended, if the others take as long as those that have [s since
        1970].
        """
        return (
            time.time() + (time.time() - self.began) / self.ended * ahead
            if self.ended and ahead
            else None
        )


def page(plan: Any, since: float = 0.0) -> list[str]:
    """Return the line with the page's location, if it was made after `since` [s since 1970]."""
    path = Path(layout.page(plan.home))
    there = path.exists() and path.stat().st_mtime >= since
    return [f"page: {path}   (tables, figures and report.html lie beside it)"] * there


def answers(plan: Any, since: float = 0.0) -> list[str]:
    """Return the answers of the page, a line each, if it was made after `since` [s since 1970]."""
    path = Path(layout.page(plan.home)).with_name("study.json")
    try:
        if path.stat().st_mtime < since:
            return []
        lines: list[str] = json.loads(path.read_text(encoding="utf-8"))["screen"]
        return lines
    except (OSError, ValueError, KeyError):
        return []


def varying(specs: Sequence[Any]) -> tuple[str, ...]:
    """Return the settings in which runs differ, but framework and workers, which are said of each;
    none that differs because another one does.
    """
    runs = [spec for spec in specs if isinstance(spec, RunSpec)]
    table = [spec.columns() for spec in runs]
    differ = {name for name in ROLES if len({str(row[name]) for row in table}) > 1}
    names = [
        name for name in ROLES if name in differ and ROLES[name].kind not in (FOLLOWS, WATCHED)
    ]
    of_recipe = {field.name for field in fields(Recipe)} if "recipe" in differ else set()
    said = {"framework", "workers", "workers_per_node", *(of_recipe - {"recipe"})}
    if "repeat" in differ:
        said.add("seed")
    if all(row["epochs"] == row["of_epochs"] for row in table):
        said.add("epochs")  # those of the whole run are said

    def follows(name: str) -> bool:
        if name == "global_batch":  # a batch of each worker makes it differ with the workers
            return "batch_per_worker" not in differ
        return not differ.isdisjoint(ROLES[name].follows)

    return tuple(name for name in names if name not in said and not follows(name))


def line(
    plan: Any,
    name: str,
    ahead: set[str],
    failed: set[str],
    end: float | None,
    columns: int = 0,
    made: bool = True,
    varies: Sequence[str] = (),
) -> str:
    """Return `12 of 31 runs done, 1 failed, expected end 14:05; last: deepspeed on 2 workers,
    lenet, 1277 images/s`.

    `varies` are settings in which the study's runs differ. A terminal of fewer `columns` gets the
    first part only; 0: as wide as it may be.
    """
    done = len(plan.jobs) - len(ahead) - len(failed)
    text = f"{done} of {kinds.counted(job.rule for job in plan.jobs.values())} done"
    text += f", {len(failed)} failed" if failed else ""
    if end is not None:
        days = (datetime.fromtimestamp(end).date() - datetime.now().date()).days
        text += f", expected end {datetime.fromtimestamp(end):{'%a %H:%M' if days else '%H:%M'}}"
    whole = f"{text}; last: {_last(plan, name, name in failed, made, varies)}"
    return whole if not columns or len(whole) <= columns else text[:columns]


def _last(plan: Any, name: str, failed: bool, made: bool, varies: Sequence[str]) -> str:
    """Describe the run, and how fast it was if this call `made` it, or that it failed."""
    spec = plan.jobs[name].spec
    if not (hasattr(spec, "framework") and hasattr(spec, "workers")):
        return f"{name}{', failed' if failed else ''}"
    what = f"{spec.framework} on {count_of(spec.workers, worker(plan.machine.device))}"
    if isinstance(spec, RunSpec):
        values = spec.columns()
        what = ", ".join(
            [
                what,
                *(ROLES[name].phrase(values[name]) for name in varies if values[name] is not None),
            ]
        )
    if failed:
        return f"{what}, failed: ddlbench failures"
    if not made:
        return what
    rate = rate_of_steps(plan.jobs[name].folder(layout.RESULTS))
    return what if rate is None else f"{what}, {rounded(rate, 3)} {spec.sample}/s"


def rate_of_steps(folder: Path) -> float | None:
    """Return the throughput of a run's steps, as tables and page have it; None where its record has
    none.

    It is in the summary that the run's job has just left beside the log. Who reads a record itself
    needs pandas, which Snakemake's own process needs for nothing else. Snakemake may have given the
    log another time since then.
    """
    try:
        head, body = map(json.loads, read_bytes(folder / SUMMARY).decode().splitlines())
        if head["files"][MLLOG][2] != sha256(folder / MLLOG):
            return None
        return float(body["values"]["throughput_images_per_s"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def starts_jobs(workflow: Any) -> bool:
    """Tell whether this Snakemake will run jobs: not in a dry run, a report, or within a job."""
    return bool(
        workflow.is_main_process and workflow.executor_plugin is not None and not workflow.dryrun
    )


def attach(workflow: Any) -> Lines:
    """Print our lines on the terminal of this Snakemake, but not on that of a job, which is the
    same.
    """
    asked = workflow.output_settings
    whole = bool(asked.verbose or asked.printshellcmds)
    sums_up = bool(asked.dryrun and not whole)
    lines = Lines(workflow, lambda: starts_jobs(workflow), whole, sums_up)
    if workflow.is_main_process:
        snakemake_lines.attach(lines.shown)
    if sums_up:
        snakemake_lines.leave_out_jobs()
    return lines
