"""Failed runs, and why each failed. `snakemake failures` prints and writes this while other runs go on.

It needs no record and no other table, so it works at any time. `ddlbench.run` writes what it reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ddlbench.columns import Column
from ddlbench.files import printable
from ddlbench.record import MLLOG

FAILED = "failed"  # a run's folder of what a failed attempt left
REPORT = "failure.json"  # there: cause, rank, host, message, step, time, and slurm_job_id on a cluster
COLUMNS = (
    Column("run", "str", "The run that failed."),
    Column("when", "str", "When it failed, in UTC."),
    Column("cause", "str", "What happened, in a few words that can be counted."),
    Column("rank", "str", "The rank that failed first."),
    Column("step", "str", "The step that this rank was in."),
    Column("host", "str", "The computer of this rank."),
    Column("slurm_job_id", "str", "The job in SLURM."),
    Column("message", "str", "The error message."),
    Column("log", "str", "The file with everything that the run printed."),
)
NAMES = tuple(column.name for column in COLUMNS)


def failures(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """One row (COLUMNS) per run folder that has no record but leftovers of a failed run, sorted by run id.

    What is not known is None: a run that was killed together with its supervisor leaves no report.
    """
    rows = []
    for folder in sorted(folders):
        left = folder / FAILED
        if (folder / MLLOG).exists() or not left.is_dir():
            continue
        try:
            report = json.loads((left / REPORT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            report = {}
        row = dict.fromkeys(NAMES) | {name: report[name] for name in NAMES if name in report}
        when = report.get("time", left.stat().st_mtime)
        if isinstance(when, int | float):
            when = datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")
        rows.append(row | {"run": folder.name, "when": when, "log": str(folder / "train.log")})
    return rows


def lines(rows: list[dict[str, Any]], most: int | None = None) -> list[str]:
    """For people: two lines per run, for at most `most` runs."""
    said = []
    for row in rows[:most]:
        message = (row["message"] or row["cause"] or "it left no report").strip().splitlines()
        said += [f"{row['run']}: {printable(message[-1])}", f"    {row['when']}, log: {row['log']}"]
    if most is not None and len(rows) > most:
        said.append(f"... and {len(rows) - most} more")
    return said
