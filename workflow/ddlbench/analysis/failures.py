"""What failed, and why: runs, and jobs of inference. `ddlbench failures` prints and writes this while others go on.

It needs no record and no other table, so it works at any time. `ddlbench.run` writes what it reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ddlbench.core.columns import Column
from ddlbench.core.files import printable
from ddlbench.core.plural import count_of
from ddlbench.core.record import MLLOG
from ddlbench.train.inference import _record as asked_record

FAILED = "failed"  # in the folder of a run, or of a job of inference: what a failed attempt left
TRAIN, INFER = "train", "infer"  # the rules whose jobs are listed
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


def failures(runs: Iterable[Path], inferences: Iterable[Path] = ()) -> list[dict[str, Any]]:
    """One row (COLUMNS) per folder that has no record but leftovers of a failed attempt: of runs, then of jobs of
    inference, each sorted by id.

    What is not known is None: a run that was killed together with its supervisor leaves no report.
    """
    kinds = [(TRAIN, runs, MLLOG, "train.log"), (INFER, inferences, asked_record.RECORD, "infer.log")]
    return [
        _row(rule, folder, folder / log)
        for rule, folders, record, log in kinds
        for folder in sorted(folders)
        if (folder / FAILED).is_dir() and not (folder / record).exists()
    ]


def _row(rule: str, folder: Path, log: Path) -> dict[str, Any]:
    left = folder / FAILED
    try:
        report = json.loads((left / REPORT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        report = None
    report = report if isinstance(report, dict) else {}
    row = dict.fromkeys(NAMES) | {name: str(report[name]) for name in NAMES if report.get(name) is not None}
    row |= {name: report[name] if isinstance(report.get(name), int) else None for name in ("rank", "step")}
    when = report.get("time", left.stat().st_mtime)
    if isinstance(when, int | float):
        when = datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")
    return row | {"run": folder.name, "rule": rule, "when": when, "log": str(log)}


def counted(rows: list[dict[str, Any]]) -> str:
    """`2 failed runs`, `1 failed run and 1 failed job of inference`."""
    asked = sum(row["rule"] == INFER for row in rows)
    trained = len(rows) - asked
    said = [count_of(trained, "failed run")] * (trained > 0 or not asked)
    return " and ".join([*said, *[f"{count_of(asked, 'failed job')} of inference"] * (asked > 0)])


def lines(rows: list[dict[str, Any]], most: int | None = None) -> list[str]:
    """For people: two lines per row, for at most `most` rows."""
    said = []
    for row in rows[:most]:
        message = (row["message"] or row["cause"] or "it left no report").strip().splitlines()
        said += [f"{row['run']}: {printable(message[-1])}", f"    {row['when']}, log: {row['log']}"]
    if most is not None and len(rows) > most:
        said.append(f"... and {len(rows) - most} more")
    return said
