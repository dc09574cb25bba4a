"""Snakemake 9: what it would print goes through a filter of ours, which is also told of jobs that
begin and end.

Upstream (snakemake/snakemake): a Snakefile could name a logger plugin, which today has to be
installed and asked for; `Job.log_info` could ask whether anybody listens before it fills a job's
message and its command, twice.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ddlbench.patches import only_for, private

MINE = ("snakemake", ("9",), "snakemake_lines")
EVENTS = {
    "JOB_INFO": "started",
    "JOB_FINISHED": "ended",
    "JOB_ERROR": "broken",
    "GROUP_ERROR": "broken",
}
EVENTS |= {"RUN_INFO": "counted"}
# What it says before anybody knows whether jobs will start, and where there are none.
EARLY = ("Config file", "Building DAG", "Assuming unrestricted")
# What it does when it was asked to end.
ENDING = ("Will exit after finishing", "Shutting down", "Terminating processes")
WORDS = (
    dict.fromkeys(EARLY, "early")
    | dict.fromkeys(ENDING, "ending")
    | {"Nothing to be done": "nothing"}
)

LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warning"))


class Message(NamedTuple):
    """What Snakemake would print: `what` is one of EVENTS or WORDS, `error`, `warning`, or "" for
    all else; of a job the rest.
    """

    what: str
    text: str
    job: int = -1
    rule: str = ""
    wildcards: Mapping[str, str] = {}
    log: str = ""


class Reason(NamedTuple):
    """Why Snakemake makes a job: `follows` if another job makes one of its inputs, `missing` if one
    of its outputs is not there; `words` are Snakemake's own.
    """

    follows: bool
    missing: bool
    words: tuple[str, ...]


def reason_of(dag: Any, job: Any) -> Reason:
    """Return why Snakemake makes a job. Raises ReleaseError."""
    found = dag.reason(job)
    follows, missing = (
        private(found, name, *MINE) for name in ("_updated_input_run", "_missing_output")
    )
    return Reason(bool(follows), bool(missing), tuple(found.get_names()))


def attach(wanted: Callable[[Message], bool]) -> None:
    """Print only those of Snakemake's lines that are `wanted`. Raises ReleaseError."""
    from snakemake.logging import logger
    from snakemake_interface_logger_plugins.common import LogEvent

    only_for(*MINE)
    events = {str(private(LogEvent, name, *MINE)): message for name, message in EVENTS.items()}

    def line(record: Any) -> Message:
        event = vars(record)
        text = str(event.get("rule_msg") or record.msg)
        of_words = (what for words, what in WORDS.items() if text.startswith(words))
        other = next(
            of_words, next((what for level, what in LEVELS if record.levelno >= level), "")
        )
        number = event.get("jobid", event.get("job_id", -1))
        what = events.get(str(event.get("event") or ""), other)
        log = next(iter(event.get("log") or ()), "")
        return Message(
            what, text, number, event.get("rule_name", ""), event.get("wildcards") or {}, log
        )

    for handler in logger.handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(
            handler, logging.FileHandler
        ):
            handler.filters.insert(
                0, lambda record: wanted(line(record))
            )  # Snakemake's own may stop a line before it


def leave_out_jobs() -> None:
    """Stop Snakemake from listing its jobs: with thousands, half of a dry run that shows none went
    into it.
    """
    from snakemake.jobs import Job

    private(Job, "log_info", *MINE)
    Job.log_info = lambda self, *options, **named: None
