"""What a terminal shows while a study runs: a line of ours after each run. Snakemake's own lines go to its log.

Somebody who asks for more (`--verbose`, `--printshellcmds`) sees Snakemake's lines too, and so does whoever sends the
output into a pipe or a file, which then is a log. Errors are shown always.
"""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ddlbench.core import kinds, layout
from ddlbench.core.plural import count_of, rounded, worker
from ddlbench.plan import measured

STARTED, FINISHED, BROKEN = "job_info", "job_finished", "job_error"  # Snakemake's names of these events
ASKED = ("predict", "recommend", "what_if", "application")  # questions that compute: a terminal hears that they begin
NOTHING = "Nothing to be done"
EARLY = ("Building DAG", "Assuming unrestricted")  # what it says before anybody knows whether jobs will start


class Lines(logging.Filter):
    """Of Snakemake's terminal: what it lets through, and a line of its own for each run that ends."""

    def __init__(self, plan: Any, workflow: Any, starts: Callable[[], bool], whole: bool) -> None:
        """`starts` says whether jobs are started by this call; `whole`: all lines of Snakemake are wanted too."""
        super().__init__()
        self.plan, self.workflow, self.starts, self.whole = plan, workflow, starts, whole
        self.rules = {kind.RULE: kind.WILDCARD for kind in kinds.every()}
        self.names: dict[int, str] = {}
        self.failed: set[str] = set()
        self.ended, self.began = 0, 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether Snakemake's line is shown."""
        event, job = str(getattr(record, "event", "") or ""), getattr(record, "jobid", getattr(record, "job_id", -1))
        if not self.starts():
            return self.whole or not str(record.msg).startswith(EARLY)
        if event == STARTED and getattr(record, "rule_name", "") in self.rules:
            wildcards: Mapping[str, str] = getattr(record, "wildcards", {}) or {}
            self.names[job] = str(wildcards.get(self.rules[record.rule_name], ""))  # type: ignore[attr-defined]
            self.began = self.began or time.time()
        elif event == STARTED and getattr(record, "rule_name", "") in ASKED and not self.whole:
            print(f"{getattr(record, 'rule_msg', '') or ''} ...", file=sys.stderr, flush=True)
        elif event in (FINISHED, BROKEN) and job in self.names:
            self.say(self.names[job], event == BROKEN)
        if self.whole or str(record.msg).startswith(NOTHING):
            return True
        return record.levelno >= logging.ERROR and event not in (BROKEN, "group_error")

    def say(self, name: str, broken: bool) -> None:
        """Print the line about a run that has ended."""
        (self.failed.add if broken else self.failed.discard)(name)
        self.ended += not broken
        left = self._left() - {name} - self.failed
        columns = shutil.get_terminal_size().columns if sys.stderr.isatty() else 0
        print(line(self.plan, name, left, self.failed, self._end(len(left)), columns), file=sys.stderr, flush=True)

    def _left(self) -> set[str]:
        """The runs that this call still has to make."""
        jobs = [job for job in self.workflow.dag.needrun_jobs() if job.rule.name in self.rules]
        return {str(getattr(job.wildcards, self.rules[job.rule.name])) for job in jobs}

    def _end(self, left: int) -> float | None:
        """When all will have ended, if the others take as long as those that have [s since 1970]."""
        return time.time() + (time.time() - self.began) / self.ended * left if self.ended and left else None


def line(plan: Any, name: str, left: set[str], failed: set[str], end: float | None, columns: int = 0) -> str:
    """`12 of 31 runs done, 1 failed, expected end 14:05; last: deepspeed on 2 workers, 1277 images/s`.

    A terminal of fewer `columns` gets the first part only; 0: as wide as it may be.
    """
    done = len(plan.jobs) - len(left) - len(failed)
    said = f"{done} of {kinds.counted(job.rule for job in plan.jobs.values())} done"
    said += f", {len(failed)} failed" if failed else ""
    if end is not None:
        days = (datetime.fromtimestamp(end).date() - datetime.now().date()).days
        said += f", expected end {datetime.fromtimestamp(end):{'%a %H:%M' if days else '%H:%M'}}"
    whole = f"{said}; last: {_last(plan, name, name in failed)}"
    return whole if not columns or len(whole) <= columns else said[:columns]


def _last(plan: Any, name: str, failed: bool) -> str:
    """What the run is, and how fast it was, or that it failed."""
    spec = plan.jobs[name].spec
    if not (hasattr(spec, "framework") and hasattr(spec, "workers")):
        return f"{name}{', failed' if failed else ''}"
    what = f"{spec.framework} on {count_of(spec.workers, worker(plan.machine.device))}"
    if failed:
        return f"{what}, failed: ddlbench failures"
    took = measured.read_measured(plan.jobs[name].folder(layout.RESULTS))
    return f"{what}, {rounded(took.rate * spec.workers, 3)} {spec.sample}/s" if took else what


def attach(plan: Any, workflow: Any, starts: Callable[[], bool]) -> None:
    """Put our lines on the terminal of this Snakemake."""
    from snakemake.logging import logger

    asked = workflow.output_settings
    whole = bool(asked.verbose or asked.printshellcmds or not sys.stderr.isatty())
    for handler in logger.handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
            handler.filters.insert(0, Lines(plan, workflow, starts, whole))  # Snakemake's own may stop a line before it
