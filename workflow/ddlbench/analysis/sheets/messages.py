"""Table `messages`: what DeepSpeed's ranks sent each other, by operation and size of the message.

Runs with option `comms_logger` leave `comms.txt`, what rank 0 logged since the run last started.
Sizes are those that DeepSpeed was asked to send, rounded as it writes them, and not bytes on a
network: headers are not in them, nor what an all-reduce sends twice. Its times are left out:
DeepSpeed 0.19.6 writes for each message the time of all messages of that operation so far (its
timer is read without a reset), and sums these sums. Bandwidths come of the same times.
"""

import re
from pathlib import Path
from typing import Any

from ddlbench.analysis.record import Record
from ddlbench.analysis.sheets import Sheet
from ddlbench.core.columns import Column, Why
from ddlbench.core.files import read_bytes
from ddlbench.core.record import COMMS
from ddlbench.core.spec import RunSpec

COLUMNS = (
    Column("run", "str", "The run."),
    Column("model", "str", "Its model."),
    Column("framework", "str", "Its framework, or a variant of one."),
    Column("workers", "Int64", "Its ranks."),
    Column("operation", "str", "What the message was: `all_reduce`, `broadcast`, ..."),
    Column(
        "message_bytes", "float64", "Size of one message, rounded as DeepSpeed writes it.", "bytes"
    ),
    Column("messages", "Int64", "How many of this size rank 0 sent since the run last started."),
    Column("bytes", "float64", "All of them together.", "bytes"),
)
HEAD = "Comm. Op"
UNITS = {unit: 1024**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB"))}
_SIZE = re.compile(r"^\s+([0-9.]+) ?([KMGTP]?B)\s+(\d+)(?:\s+[0-9.e+-]+){4}\s*$")
_OPERATION = re.compile(r"^\w+$")


def parse(text: str) -> list[dict[str, Any]]:
    """Parse `comms.txt`: one row per operation and size.

    Raises ValueError for an impossible line.
    """
    lines = text.splitlines()
    if not lines or not lines[0].startswith(HEAD):
        raise ValueError("is not a communication log of DeepSpeed")
    table: list[dict[str, Any]] = []
    operation = None
    for number, line in enumerate(lines[1:], 2):
        size = _SIZE.match(line)
        if size and operation:
            each, count = float(size[1]) * UNITS[size[2]], int(size[3])
            sent = {"message_bytes": each, "messages": count, "bytes": each * count}
            table.append({"operation": operation} | sent)
        elif _OPERATION.match(line.strip()) and not line.startswith(" "):
            operation = line.strip()
        elif line.strip():
            raise ValueError(f"line {number} is not a message: {line.strip()[:60]!r}")
    return table


def of_run(folder: Path, spec: RunSpec) -> list[dict[str, Any]] | Why:
    """Return the rows of a run with a log of messages, none for a run without, or the reason why
    its log gives none.
    """
    path = folder / COMMS
    if not path.exists():
        return []
    about = {
        "run": spec.id,
        "model": spec.model,
        "framework": spec.framework,
        "workers": spec.workers,
    }
    try:
        return [about | row for row in parse(read_bytes(path).decode("utf-8", "replace"))]
    except ValueError as error:
        return Why(f"{path.name} {error}")


def _of_record(record: Record) -> list[dict[str, Any]] | Why:
    return of_run(record.folder, record.spec)


SHEET = Sheet(
    "One row per operation and size of message of each run with DeepSpeed's log of messages. The"
    " log's times are left out: DeepSpeed 0.19.6 writes running sums in their place.",
    COLUMNS,
    place=77,
    of_record=_of_record,
)
