"""What failed, and why, whatever kind of job it was. `ddlbench failures` prints and writes this while others go on.

It needs no record and no other table, so it works at any time. `ddlbench.run` writes what it reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlbench.core import kinds
from ddlbench.core.columns import Column
from ddlbench.core.files import printable

if TYPE_CHECKING:
    import pandas as pd

FAILED = "failed"  # in the folder of a job: what a failed attempt left
REPORT = "failure.json"  # there: cause, rank, host, message, step, time, and slurm_job_id on a cluster
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
    """One row (COLUMNS) per job's folder that has no record but leftovers of a failed attempt, by kind and by id.

    What is not known is None: a run that was killed together with its supervisor leaves no report.
    """
    order = kinds.every()
    of_kind = sorted((order.index(kinds.of_folder(folder)), folder) for folder in folders)
    return [
        _row(order[place], folder)
        for place, folder in of_kind
        if (folder / FAILED).is_dir() and not (folder / order[place].OUTPUTS[0]).exists()
    ]


def of_runs(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of runs. Other jobs are made again before their table, or a page, is: theirs are of earlier tries."""
    return table[table["rule"].map(kinds.trains).astype(bool)]


def _row(kind: Any, folder: Path) -> dict[str, Any]:
    failed = folder / FAILED
    try:
        report = json.loads((failed / REPORT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        report = None
    report = report if isinstance(report, dict) else {}
    row = dict.fromkeys(NAMES) | {name: str(report[name]) for name in NAMES if report.get(name) is not None}
    row |= {name: report[name] if isinstance(report.get(name), int) else None for name in ("rank", "step")}
    when = report.get("time", failed.stat().st_mtime)
    if isinstance(when, int | float):
        when = datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")
    return row | {"run": folder.name, "rule": kind.RULE, "when": when, "log": str(folder / kind.LOG)}


def counted(rows: list[dict[str, Any]]) -> str:
    """`2 failed runs`, `1 failed run and 1 failed job of inference`."""
    return kinds.counted((row["rule"] for row in rows), "failed ")


def lines(rows: list[dict[str, Any]], most: int | None = None) -> list[str]:
    """For people: two lines per row, for at most `most` rows."""
    text = []
    for row in rows[:most]:
        message = (row["message"] or row["cause"] or "it left no report").strip().splitlines()
        text += [f"{row['run']}: {printable(message[-1])}", f"    {row['when']}, log: {row['log']}"]
    if most is not None and len(rows) > most:
        text.append(f"... and {len(rows) - most} more")
    return text
