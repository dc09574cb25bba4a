"""Runs that failed: what each left says why. `snakemake failures` prints and writes this while other runs go on.

It needs no record and no other table, so that it can be asked at any time. `ddlbench.run` writes what it reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ddlbench.record import MLLOG

FAILED = "failed"  # a run's folder of what a failed attempt left
REPORT = "failure.json"  # there: cause, rank, host, message, step, time, and slurm_job_id on a cluster
COLUMNS = ("run", "when", "cause", "rank", "step", "host", "slurm_job_id", "message", "log")


def failures(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """A row of COLUMNS for each run folder without a record where a failed run left something, by run id.

    `when` is in UTC; `log` is what the run printed. What is not known is None: a run that was killed with the
    supervisor leaves a folder without a report.
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
        row = dict.fromkeys(COLUMNS) | {name: report[name] for name in COLUMNS if name in report}
        when = report.get("time", left.stat().st_mtime)
        if isinstance(when, int | float):
            when = datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")
        rows.append(row | {"run": folder.name, "when": when, "log": str(folder / "train.log")})
    return rows


def lines(rows: list[dict[str, Any]], most: int | None = None) -> list[str]:
    """For people: two lines a run, at most so many runs."""
    said = []
    for row in rows[:most]:
        message = (row["message"] or row["cause"] or "it left no report").strip().splitlines()
        said += [f"{row['run']}: {message[-1]}", f"    {row['when']}, log: {row['log']}"]
    if most is not None and len(rows) > most:
        said.append(f"... and {len(rows) - most} more")
    return said
