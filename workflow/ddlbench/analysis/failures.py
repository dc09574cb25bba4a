"""What failed, and why, whatever kind of job it was. `ddlbench failures` prints and writes this
while others go on.

It needs no record and no other table, so it works at any time. `ddlbench.run` writes what it reads:
a supervisor why its job failed, or, where no supervisor could, the Snakemake that asked for the job
(`run/reason.py`). Terminal, `failures` and `status` ask here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlbench.core import kinds
from ddlbench.core.columns import Column
from ddlbench.core.files import printable, read_bytes

if TYPE_CHECKING:
    import pandas as pd

FAILED = "failed"  # in the folder of a job: what a failed attempt left
PARTIAL = ".partial"  # there too: what ranks write while the job is made
# in FAILED: cause, rank, host, message, step, time, and slurm_job_id on a cluster
REPORT = "failure.json"
COLUMNS = (
    Column("run", "str", "The run, or the job of inference, that failed."),
    Column("rule", "str", "`train` of a run, `infer` of a job of inference."),
    Column("when", "str", "When it failed, in UTC."),
    Column("cause", "str", "What happened, in a few words that can be counted."),
    Column("rank", "Int64", "The rank that failed first."),
    Column("step", "Int64", "The step that this rank was in."),
    Column("host", "str", "The computer of this rank."),
    Column("slurm_job_id", "str", "The job in SLURM."),
    Column("message", "str", "The error message."),
    Column("log", "str", "The file with everything that it printed."),
)
NAMES = tuple(column.name for column in COLUMNS)


def failures(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Return one row (COLUMNS) per job's folder whose last attempt failed, by kind and by id.

    What is not known is None: a run that was killed together with its supervisor leaves no report.
    """
    order = kinds.job_rules()
    of_kind = sorted((order.index(kinds.of_folder(folder)), folder) for folder in folders)
    return [
        _row(order[place], folder)
        for place, folder in of_kind
        if has_failed(folder) and _is_after(folder, folder / order[place].outputs[0])
    ]


def has_failed(folder: Path) -> bool:
    """Return whether the last attempt at a job failed, if it left no record: it left a reason, or
    what it had made. One that is at work, or was stopped, has PARTIAL and no reason.
    """
    failed = folder / FAILED
    return (failed / REPORT).exists() or (failed.is_dir() and not (folder / PARTIAL).is_dir())


def _is_after(folder: Path, record: Path) -> bool:
    """Return whether a job failed after it left its record, if it has one: the job was requested
    again.
    """
    try:
        recorded_s = record.stat().st_mtime
    except OSError:
        return True
    try:
        return (folder / FAILED / REPORT).stat().st_mtime > recorded_s
    except OSError:
        return False


def of_runs(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of runs. Other jobs are made again before their table or a page is made:
    their rows are of earlier tries.
    """
    return table[table["rule"].map(kinds.trains).astype(bool)]


def _row(rule: kinds.JobRule, folder: Path) -> dict[str, Any]:
    failed = folder / FAILED
    try:
        report = json.loads(read_bytes(failed / REPORT))
    except (OSError, ValueError):
        report = None
    report = report if isinstance(report, dict) else {}
    row = dict.fromkeys(NAMES) | {
        name: str(report[name]) for name in NAMES if report.get(name) is not None
    }
    row |= {
        name: report[name] if isinstance(report.get(name), int) else None
        for name in ("rank", "step")
    }
    when = report.get("time", failed.stat().st_mtime)
    if isinstance(when, int | float):
        when = datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")
    return row | {
        "run": folder.name,
        "rule": rule.name,
        "when": when,
        "log": str(folder / rule.log),
    }


def counted(rows: list[dict[str, Any]]) -> str:
    """Format the number of failed jobs: `2 failed runs`, `1 failed run and 1 failed job of
    inference`.
    """
    return kinds.counted((row["rule"] for row in rows), "failed ")


def why(row: dict[str, Any]) -> str:
    """Return the reason of a row, on one line."""
    message = (row["message"] or row["cause"] or "it wrote no error report").strip().splitlines()
    return printable(message[-1])


def lines(rows: list[dict[str, Any]], most: int | None = None) -> list[str]:
    """Format for people: two lines per row, for at most `most` rows."""
    text = []
    for row in rows[:most]:
        text += [f"{row['run']}: {why(row)}", f"    {row['when']}, log: {row['log']}"]
    if most is not None and len(rows) > most:
        text.append(f"... and {len(rows) - most} more")
    return text
