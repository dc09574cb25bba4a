"""Records that `ddlbench.run` made: a folder per run, whose log must say by `ddlbench_spec` which
run it is.

`record` reads one and believes what `_sound.py` believes: the only way by which it comes into
tables. `read` gives what tables need of it: from `summary.jsonl` beside it if that was made of this
very record by this version, else from the record, and leaves it there. `ddlbench.run` calls it when
a run ends well, `collect` for each run. The file is a copy that may be deleted at any time, never a
source. Its first line says of which files and by which version it was made, the SHA-256 of the
second, which is the summary, and a code of both that only who has this user's key can make. So a
summary that was changed by hand, or comes from somebody else, is made again from the record.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis.record import Record
from ddlbench.analysis.refusals import RefusedError, not_understood, seal_of
from ddlbench.analysis.summary import VERSION, Summary, make, of_records
from ddlbench.core import kinds
from ddlbench.core.files import hidden_name, link_new, opened, read_bytes, sha256, write_text
from ddlbench.core.mllog import Event, ended_well, read_log
from ddlbench.core.record import KERNELS, MLLOG, READ, STEPS
from ddlbench.core.record import SUMMARY as SUMMARY
from ddlbench.core.spec import RunSpec
from ddlbench.core.step_rows import STEP_COLUMNS
from ddlbench.records import _fitting, _planned, _sound

KEY_BYTES = 32
KERNEL_COLUMNS = ("name", "on", "self_s", "annotation")
MOST_KERNELS = 1_000_000  # names of kernels; a model has hundreds
BYTES_A_ROW = 1_000  # names of kernels are long; a step has 12 columns of 4 or 8 bytes
MOST_SMALL = 1 << 20  # of a file of few rows, which has a dictionary and statistics
FILES = (MLLOG, *READ)
Stamps = Mapping[
    str, list[int] | None
]  # the size and the time of each file; None for one that is not there


def find(folder: Path, benchmarks: Sequence[str] = ()) -> list[Path]:
    """Find the run folders in a folder. Ours name no benchmark: `benchmarks` is ignored."""
    return sorted(log.parent for log in folder.glob(f"*/{MLLOG}"))


def read(place: Path, wanted: str | None = None) -> Summary | None:
    """Return what tables need of the record in a run's folder; None without one.

    The contract is in `records/__init__.py`.
    """
    if not (place / MLLOG).exists():
        return None
    _planned.check_settings(place, wanted)
    stamps = _stamps(
        place
    )  # before the record is read: a change during the reading then invalidates the summary at once
    summary = _read_summary(place, stamps)
    if summary is None:
        summary = make(record(place))
        _write_summary(place, stamps, json.dumps(summary))
    return summary


def records(logs: Iterable[Path], refused: list[str]) -> Iterator[Record]:
    """Yield the records of these logs that are sound; add a line about each other one to
    `refused`.
    """
    for log in logs:
        try:
            yield record(log.parent)
        except RefusedError as error:
            refused.append(str(error))


def record(folder: Path) -> Record:
    """Read the record in a run's folder.

    Raises RefusedError, naming the file, if it is not that run's, is not as it was sealed, or
    cannot be true.
    """
    log = folder / MLLOG
    try:
        return _read(folder, log)
    except RefusedError:
        raise
    except (
        Exception
    ) as error:  # an unexpected value in a file must not keep the other runs from their tables
        raise not_understood(log, error) from error


def _read(folder: Path, log: Path) -> Record:
    events = list(read_log(log))
    last = {event.key: event for event in events}
    digests = seal_of(log)
    if "ddlbench_spec" not in last:
        raise RefusedError(log, "has no ddlbench_spec, so its run is unknown")
    spec = RunSpec.from_json(json.dumps(last["ddlbench_spec"].value))
    if spec.id != folder.name:
        raise RefusedError(log, f"is the record of another run, {spec.id}")
    _sound.check_log(log, events, spec)
    images: int = last["train_samples"].value
    if not ended_well(last):
        return Record(folder, spec, events, last, images, False, pd.DataFrame())
    for name in READ:
        _sound.check_digest(folder / name, digests.get(name))
    steps = _table(folder / STEPS, STEP_COLUMNS, _sound.most_steps(spec, images))
    _sound.check_steps(folder / STEPS, steps, spec, images)
    # A program may do other things between any two of its steps.
    pauses = _pauses(events) if kinds.uses_built_in_loop(spec) else None
    _fitting.check_clocks(folder / STEPS, steps, pauses, _sound.steps_in_epoch(steps, spec, images))
    _fitting.check_times(log, events, folder / STEPS, steps, spec)
    steps = steps[[*STEP_COLUMNS]]
    # Sums of millions of float32 would lose digits.
    steps = steps.astype(
        {name: "float64" for name, kind in STEP_COLUMNS.items() if kind == "float32"}
    )
    steps = steps.sort_values(["step", "rank"])
    kernels = None
    if spec.profiled and (folder / KERNELS).exists():
        kernels = _table(folder / KERNELS, KERNEL_COLUMNS, MOST_KERNELS)
        _sound.check_column(
            folder / KERNELS, kernels["self_s"], "self_s", "finite seconds, at least 0"
        )
    return Record(folder, spec, events, last, images, True, steps, kernels)


def _pauses(events: Sequence[Event]) -> set[int]:
    """Return after which steps a checkpoint was written or the run resumed from one."""
    resumed = {event.value["step"] for event in events if event.key == "ddlbench_resumed"}
    return resumed | {event.value for event in events if event.key == "ddlbench_checkpoint"}


def _table(path: Path, columns: Iterable[str], most_rows: int) -> pd.DataFrame:
    """Read those of these columns that the file has.

    The file's footer states the number of rows and bytes. A file of a few megabytes may hold rows
    that fill all of this machine's memory.
    """
    import pyarrow.parquet as pq

    try:
        with opened(path) as file, pq.ParquetFile(file) as table:
            about = table.metadata
            if about.num_rows > most_rows:
                raise RefusedError(
                    path, f"has {about.num_rows} rows; a record of this run has {most_rows} at most"
                )
            held = sum(
                about.row_group(number).total_byte_size for number in range(about.num_row_groups)
            )
            if held > BYTES_A_ROW * (about.num_rows + 1) + MOST_SMALL:
                raise RefusedError(
                    path,
                    f"has {about.num_rows} rows in {held} bytes: more than its columns can hold",
                )
            names = [name for name in columns if name in table.schema_arrow.names]
            read: pd.DataFrame = table.read(columns=names).to_pandas(ignore_metadata=True)
            return read
    except RefusedError:
        raise
    except Exception as error:  # pyarrow has many kinds
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise RefusedError(path, f"cannot be read ({first})") from error


def _read_summary(folder: Path, stamps: Stamps) -> Summary | None:
    """Read the summary beside the record. None if there is none, if it is damaged, or if it belongs
    to other files or to another version.
    """
    try:
        first, body = read_bytes(folder / SUMMARY).decode().splitlines()
        head = json.loads(first)
        if head["version"] != VERSION or head["sha256"] != _digest(body):
            return None
        if not hmac.compare_digest(str(head["code"]), _code(head) or ""):
            return None
        if not all(
            _is_unchanged(folder / name, stamp, head["files"].get(name))
            for name, stamp in stamps.items()
        ):
            return None
        summary: Summary = json.loads(body)
        _sound.check_summary(folder / SUMMARY, summary)
        if summary["run"]["run"] != folder.name or not of_records().keys() <= summary.keys():
            return None  # another run's, or of before one of `analysis/sheets/`
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if any(stamp and stamp != head["files"][name][:2] for name, stamp in stamps.items()):
        _write_summary(folder, stamps, body)  # copied: next time its times will do
    return summary


def _write_summary(folder: Path, stamps: Stamps, body: str) -> None:
    with suppress(OSError):  # somebody else's records, which we may only read; or a full disk
        files = {
            name: [*stamp, sha256(folder / name)] if stamp else None
            for name, stamp in stamps.items()
        }
        head = {"version": VERSION, "files": files, "sha256": _digest(body)}
        head["code"] = _code(head)
        write_text(folder / SUMMARY, f"{json.dumps(head)}\n{body}\n")


def _is_unchanged(path: Path, stamp: list[int] | None, former: Any) -> bool:
    """Tell whether it is still the record's file.

    One of the same size and time is not read; others are compared.
    """
    if stamp is None or former is None:
        return stamp is former
    return bool(stamp == former[:2] or (stamp[0] == former[0] and sha256(path) == former[2]))


def _stamps(folder: Path) -> Stamps:
    stamps: dict[str, list[int] | None] = dict.fromkeys(FILES)
    for name in FILES:
        with suppress(FileNotFoundError):
            about = (folder / name).stat()
            stamps[name] = [about.st_size, about.st_mtime_ns]
    return stamps


def _code(head: Mapping[str, Any]) -> str | None:
    """Return a code of the first line of a summary that can be computed with this user's key only.
    None where there can be no key; then every summary is made again.
    """
    try:
        states = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
    except RuntimeError:  # no home folder
        return None
    key = _key(states / "ddlbench/summaries")
    if key is None:
        return None
    text = json.dumps([head[name] for name in ("version", "files", "sha256")], sort_keys=True)
    return hmac.new(key, text.encode(), "sha256").hexdigest()


@cache
def _key(path: Path) -> bytes | None:
    """Return this user's key in a file, which is made if there is none. None if it cannot be."""
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(hidden_name(path.name))
            new.touch(mode=0o600)
            new.write_bytes(secrets.token_bytes(KEY_BYTES))
            with suppress(FileExistsError):  # another process was first
                link_new(new, path)
            new.unlink()
        key = read_bytes(path)
    except OSError:
        return None
    return key if len(key) == KEY_BYTES else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
