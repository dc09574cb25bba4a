"""What Snakemake says of a job that failed: the reason first, on a line of its own.

Snakemake prints the whole command instead, more than 1500 letters of which most are the run's settings, and twice where
it runs jobs itself. The run's own log begins with the command that starts the ranks, so the log's name stands for it.
"""

import logging
from datetime import UTC, datetime
from pathlib import Path

from ddlbench.analysis import failures
from ddlbench.core import kinds
from ddlbench.core.files import printable

STARTED = datetime.now(UTC).isoformat(timespec="seconds")
OURS = "python -m ddlbench.run"  # how the commands of these rules begin


class ReasonFirst(logging.Filter):
    """A filter for Snakemake's logger, which changes or drops its records of failed jobs."""

    def filter(self, record: logging.LogRecord) -> bool:
        """False drops the record."""
        fields = vars(record)
        if fields.get("rule_name") in kinds.rules() and fields.get("aux") is not None:
            folder, message = Path(fields["output"][0]).parent, fields["rule_msg"] or ""
            began = "before its run began" not in message  # else what is there is an earlier try's
            rows = [row for row in failures.failures([folder]) if began and row["when"] >= STARTED]
            why = failures.lines(rows)[:1] or ([] if message else _last_line(Path(fields["log"][0])))
            fields["rule_msg"] = "\n    ".join([*why, *filter(None, [message])]) or None
            fields["aux"] = {**fields["aux"], "command": f"stands at the head of {fields['log'][0]}"}
            fields["shellcmd"] = None
        # The same failure, as an exception of the shell.
        return not ("CalledProcessError" in str(record.msg) and OURS in str(record.msg))


def _last_line(log: Path) -> list[str]:
    """What a run that left no report printed last; none without a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4000))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return []
    return [printable(line) for line in lines[-1:]]


def mend_errors() -> None:
    """Let Snakemake say the reason first. Nothing happens when it is called again."""
    from snakemake.logging import logger

    if not any(isinstance(filter_, ReasonFirst) for filter_ in logger.filters):
        logger.addFilter(ReasonFirst())
