"""What tables need of one record, beside it in a file: so that tables of many runs read no steps again.

`make` is the summary of a record, a pure function. `of` gives it for a run's folder: from `summary.jsonl` there if that
was made of this very record by this very code, else from the record, and leaves it there. `ddlbench.run` calls `of`
when a run ends well, `collect.py` for each run. The file is a copy that may be deleted at any time, never a source.

Its first line says of which files and by which code it was made, and the SHA-256 of the second, which is the summary.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis import accuracy, kernels, losses, measures, messages, operations, origin, times
from ddlbench.analysis.read import Record, read
from ddlbench.core import registry
from ddlbench.core.columns import Why
from ddlbench.core.files import sha256, write_text
from ddlbench.core.record import COMMS, FLOPS, FLOPS_COUNTED, KERNELS, MLLOG, STEPS

NAME = "summary.jsonl"
RECORD = (MLLOG, STEPS, KERNELS, FLOPS, FLOPS_COUNTED, COMMS)
LISTS = {"epochs": accuracy.EPOCHS, "learning_rates": accuracy.LEARNING_RATES}
TABLES = LISTS | {
    "values": measures.COLUMNS,
    "step_times": times.MEDIANS,
    "losses": losses.COLUMNS,
    "kernels": kernels.COLUMNS,
    "operations": operations.COLUMNS,
    "messages": messages.COLUMNS,
}

Summary = dict[str, Any]


def make(record: Record) -> Summary:
    """The summary: plain values, as JSON has them. Only what a machine file says (its peaks) is still to come.

    `run`: columns of table `runs` that are no measures. `values`: its measures, by name; `why`: the reasons of those
    that are null. `epochs`, `learning_rates`: columns of these tables without the run, lists by name. `step_times`,
    `losses`, `kernels`: the run's row, or None. `no_kernels`: why a profiled run has none, or None. `operations`,
    `messages`: the run's rows of these tables; `unread`: why it has none of one, by its name.
    """
    spec = record.spec
    row = spec.columns() | {"status": "success" if record.success else "failed"} | origin.values(record)
    row |= {"records": "ours", "images": record.images, "extrapolated": spec.epochs < spec.full_epochs}
    row |= {"control": spec.control}
    summary: Summary = {"run": row, "step_times": None, "losses": None, "kernels": None}
    summary |= {"no_kernels": None, "operations": [], "messages": [], "unread": {}}
    summary |= {"epochs": {}, "learning_rates": {}}
    epochs = accuracy.epochs(record) if record.success else pd.DataFrame()
    if record.success:
        summary["epochs"] = _lists(epochs)
        summary["learning_rates"] = _lists(accuracy.learning_rates(record))
        if record.timed:
            summary["step_times"] = times.medians(record)
            summary["losses"] = losses.parts(record)
        if spec.profiled:
            shares = kernels.row(record)
            summary["no_kernels" if isinstance(shares, Why) else "kernels"] = shares
        for name, table in (("operations", operations), ("messages", messages)):
            rows = table.of_run(record.folder, spec)
            if isinstance(rows, Why):
                summary["unread"][name] = rows
            else:
                summary[name] = rows
    values = measures.measures(record, epochs)
    summary["why"] = {name: str(value) for name, value in values.items() if isinstance(value, Why)}
    summary["values"] = {name: _plain(value) for name, value in values.items() if not isinstance(value, Why)}
    return summary


def of(folder: Path) -> Summary:
    """The summary of the record in a run's folder. Raises RefusedError if that record cannot be believed."""
    stamps = _stamps(folder)  # before it is read: what changes meanwhile makes the summary old at once
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, ImportError):  # none, or a damaged one
        first, body = (folder / NAME).read_text(encoding="utf-8").splitlines()
        head = json.loads(first)
        ours = head["version"] == version() and head["members"] == _members(*head["members"][:2])
        if ours and _fits(folder, stamps, head["files"]) and head["sha256"] == _digest(body):
            summary: Summary = json.loads(body)
            if summary["run"]["run"] == folder.name and misfit(summary) is None:
                if any(stamp and stamp != head["files"][name][:2] for name, stamp in stamps.items()):
                    _leave(folder, head["members"], stamps, body)  # copied: next time its times will do
                return summary
    record = read(folder)
    summary = make(record)
    _leave(folder, _members(record.spec.loader, record.spec.adapter), stamps, json.dumps(summary))
    return summary


def misfit(summary: Summary) -> str | None:
    """What in a summary no table could hold, in words; None if nothing. The run's settings are not looked at."""
    for table, columns in TABLES.items():
        holds = {column.name: column.holds for column in columns}
        of_run = summary.get(table) or {}
        if table in LISTS and of_run:
            if of_run.keys() | {"run"} != holds.keys() or len({*map(len, of_run.values())}) > 1:
                return f"{table}: its columns are not of one length, or others than {', '.join(holds)}"
            cells: Any = ((name, value) for name, values in of_run.items() for value in values)
        else:
            cells = (cell for row in (of_run if isinstance(of_run, list) else [of_run]) for cell in row.items())
        for name, value in cells:
            if name in holds and not holds[name](value):
                return f"{table}: {name} cannot be {value!r}"
    return None


def _leave(folder: Path, members: list[Any], stamps: Mapping[str, list[int] | None], body: str) -> None:
    with suppress(OSError):  # somebody else's records, which we may only read; or a full disk
        files = {name: [*stamp, sha256(folder / name)] if stamp else None for name, stamp in stamps.items()}
        head = {"version": version(), "members": members, "files": files, "sha256": _digest(body)}
        write_text(folder / NAME, f"{json.dumps(head)}\n{body}\n")


def _fits(folder: Path, stamps: Mapping[str, list[int] | None], files: Mapping[str, Any]) -> bool:
    """Whether these are still the record's files. A file of the same size and time is not read; others are compared."""
    for name, stamp in stamps.items():
        known = files[name]
        if stamp is None or known is None:
            if stamp is not known:
                return False
        elif stamp != known[:2] and (stamp[0] != known[0] or sha256(folder / name) != known[2]):
            return False
    return True


def _stamps(folder: Path) -> dict[str, list[int] | None]:
    """The size and the time of each file of the record; None for one that is not there."""
    stamps: dict[str, list[int] | None] = dict.fromkeys(RECORD)
    for name in RECORD:
        with suppress(FileNotFoundError):
            stamps[name] = _stamp(folder / name)
    return stamps


def _stamp(path: Path) -> list[int]:
    about = path.stat()
    return [about.st_size, about.st_mtime_ns]


def _members(loader: str, adapter: str) -> list[Any]:
    """What the run's members say of themselves, as far as it is in the summary."""
    feeds, reduces = registry.member("loaders", loader), registry.member("frameworks", adapter)
    return [loader, adapter, feeds.LEARNS, feeds.DISTRIBUTION, reduces.DISTRIBUTION]


@cache
def version() -> str:
    """SHA-256 of the code that makes summaries: of this file, and of all of ddlbench that it imports."""
    sources: dict[str, bytes] = {}
    _add_source("ddlbench.analysis.summary", sources)
    return _digest(*(f"{name} {_digest(sources[name])}" for name in sorted(sources)))


def _add_source(module: str, sources: dict[str, bytes]) -> None:
    """The module's source, and that of the modules of ddlbench that it imports; of a package nothing."""
    path = registry.PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")
    if module in sources or not path.is_file():
        return
    sources[module] = path.read_bytes()
    for node in ast.walk(ast.parse(sources[module])):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("ddlbench"):
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                _add_source(str(name), sources)


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()


def _lists(table: pd.DataFrame) -> dict[str, list[Any]]:
    """The columns but the run's, with None for NaN."""
    return {str(name): [_plain(value) for value in table[name].tolist()] for name in table if name != "run"}


def _plain(value: Any) -> Any:
    """As JSON has it: Python's own number, and None for NaN."""
    value = value.item() if hasattr(value, "item") else value
    return None if value != value else value
