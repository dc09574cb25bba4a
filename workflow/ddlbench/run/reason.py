"""Why a job made no record: one reason for each, in `failed/failure.json` (`analysis/failures.py`
reads it).

A supervisor writes it. Where there was none that could (SLURM refused the job or ended it, it was
killed, it never began), the Snakemake that asked for the job does, as soon as it hears of the end.

Snakemake's own line of such a job has the reason first, on a line of its own: Snakemake prints the
whole command instead, more than 1500 letters of which most are the run's settings, and twice where
it runs jobs itself. The run's own log begins with the command that starts the ranks, so the log's
name stands for it.
"""

import logging
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ddlbench.analysis import failures
from ddlbench.core import kinds, living, notes
from ddlbench.core.files import printable, write_json
from ddlbench.run import hold
from ddlbench.slurm import step

STARTED_S = time.time()
OURS = "python -m ddlbench.run"  # how the commands of these rules begin
# among what Snakemake's SLURM plugin says of a job that failed (`patches/slurm_plugin.py`)
CAUSE = "cause"
STOPPED = "was stopped; it goes on from its checkpoint when it is started again"
Marks = Mapping[str, tuple[int, int]]


class End(NamedTuple):
    """The end of a job that Snakemake calls failed; it has not `failed` if it may still be made, or
    another made it.
    """

    failed: bool
    words: str


class ReasonFirst(logging.Filter):
    """A filter for Snakemake's logger, which changes or drops its records of failed jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[
            Path, Marks
        ] = {}  # by folder of a job: what was there when it was started

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False to drop the record."""
        fields = vars(record)
        if fields.get("rule_name") in kinds.rules() and fields.get("output"):
            folder = Path(fields["output"][0]).parent
            if fields.get("aux") is None:
                self.before[folder] = marks(folder)
            else:
                self._failed(folder, fields)
        # The same failure, as an exception of the shell.
        return not ("CalledProcessError" in str(record.msg) and OURS in str(record.msg))

    def _failed(self, folder: Path, fields: dict[str, Any]) -> None:
        """Keep the reason of a job that failed, and put it first."""
        message, log = (fields["rule_msg"] or "").strip(), Path(fields["log"][0])
        before = self.before.get(folder)
        with suppress(OSError):  # what is said of a failure must not hide it
            keep(folder, log, before, message, fields["aux"].get(CAUSE, ""))
        end = end_of(folder)
        words = [
            f"{folder.name}: {end.words}",
            *([message] if message and message not in end.words else []),
        ]
        fields["rule_msg"] = "\n    ".join(words)
        others = {name: value for name, value in fields["aux"].items() if name != CAUSE}
        fields["aux"] = {**others, "command": f"is at the top of {log}"}
        fields["shellcmd"] = None


def marks(folder: Path) -> Marks:
    """Return what tells how a job ended, each file with what changes when it is written anew."""
    record = folder / kinds.of_folder(folder).outputs[0]
    report = folder / failures.FAILED / failures.REPORT
    found = {}
    for path in (report, record, folder / failures.PARTIAL / notes.STOPPED_NOTE):
        with suppress(OSError):
            list(
                path.parent.iterdir()
            )  # some file systems believe for seconds that there is no such file
            about = path.stat()
            found[path.name] = (about.st_ino, about.st_mtime_ns)
    return found


def keep(folder: Path, log: Path, before: Marks | None, message: str, cause: str) -> None:
    """Write why a job ended, unless its supervisor did, or another one is at work or has made the
    record. `before` is what was there when it was started (None: nobody looked), `message` what
    Snakemake was told, `cause` in words that tables can count.
    """
    now = marks(folder)
    if before is None:
        before = {name: mark for name, mark in now.items() if mark[1] < STARTED_S * 1e9}
    if any(mark != before.get(name) for name, mark in now.items()):
        return
    holder = living.read(folder / hold.HOLDER)
    if holder is not None and hold.alive(holder):
        return
    last = [*hold.refusals([log]), *_last_line(log)][:1]
    if not message and holder is not None:
        cause, message = "killed", f"its supervisor was killed ({holder})"
        message += f"; it printed last: {last[0]}" if last else ""
    leave(
        folder,
        cause or ("ended by SLURM" if message else "did not begin"),
        message or " ".join(last),
    )


def leave(folder: Path, cause: str, message: str) -> None:
    """Keep why a job failed that had nothing else to keep.

    What an earlier try left stays. Raises nothing: a full disk may be the reason.
    """
    why = {"cause": cause, "rank": None, "host": socket.gethostname(), "message": message}
    with suppress(OSError):
        (folder / failures.FAILED).mkdir(parents=True, exist_ok=True)
        about = {"time": time.time(), "slurm_job_id": step.job()}
        write_json(folder / failures.FAILED / failures.REPORT, why | about)


def end_of(folder: Path) -> End:
    """Return how the last try at a job ended of which Snakemake says that it failed."""
    rows = failures.failures([folder])
    if rows:
        return End(True, failures.why(rows[0]))
    if (folder / failures.PARTIAL / notes.STOPPED_NOTE).exists():
        return End(False, STOPPED)
    if (folder / kinds.of_folder(folder).outputs[0]).exists():
        return End(False, "was made by another job")
    holder = living.read(folder / hold.HOLDER)
    if holder is not None and hold.alive(holder):
        return End(False, f"is being made by {holder}")
    return End(True, "it wrote no error report")


def _last_line(log: Path) -> list[str]:
    """Return what a run that left no report printed last; none without a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4000))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return []
    return [printable(line) for line in lines[-1:]]


def patch_errors() -> None:
    """Let Snakemake say the reason first. Nothing happens when it is called again."""
    from snakemake.logging import logger

    if not any(isinstance(filter_, ReasonFirst) for filter_ in logger.filters):
        logger.addFilter(ReasonFirst())
