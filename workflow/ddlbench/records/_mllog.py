"""An MLPerf training log read as a stream: what was said of the run, and its marks of time, in
little memory.

The formats are those of MLCommons' `mllog` package: `:::MLLOG {...}` since 0.7, `:::MLL <seconds>
<key>: {...}` in 0.6. Logs are what launchers collected: lines of other programs stand between and
around the lines, ranks write one event each, lines are cut off or run into each other. So a mark
(`:::MLL`) is looked for, not a line, and what cannot be read behind it is counted and passed over.
"""

from __future__ import annotations

import json
import math
import os
import re
from array import array
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ddlbench.core.files import cut, opened, printable

BLOCK = 1 << 20  # bytes read at once; of a line that is longer, marks beyond may be lost
LARGE = 32 << 20  # bytes from which two processes read
TOKEN = b":::MLL"
NAN = math.nan
ROWS = (
    300_000  # numbers of one key's events that are held before those that stand twice are dropped
)
OLD = re.compile(rb" (\d+(?:\.\d*)?) (\w+): ")  # of 0.6, before its JSON
# How an event counts what was trained by then, in the order in which it is believed.
COUNTS = ("samples_count", "epoch_num", "first_epoch_num")

# Marks of time, each with how much was trained by then. Of several ranks' the first start and the
# last end count.
MARKS = (
    "run_start",
    "run_stop",
    "epoch_start",
    "epoch_stop",
    "block_start",
    "block_stop",
    "eval_start",
    "eval_stop",
)
ACCURACY = "eval_accuracy"
MOST_EPOCHS = 10_000  # unet3d's limit, the largest of all; what counts further counts samples
# Rates as writers name them, in the order in which they are believed.
RATES = ("throughput", "imgs_sec", "images_per_sec", "samples_per_sec")
# Settings and facts of a run. Of each, the first value counts.
SAID = (
    *(
        "submission_benchmark",
        "submission_division",
        "submission_org",
        "submission_platform",
        "submission_status",
    ),
    *(
        "submission_entry",
        "global_batch_size",
        "train_samples",
        "eval_samples",
        "seed",
        "gradient_accumulation_steps",
    ),
    *("number_of_nodes", "accelerators_per_node", "opt_name", "opt_learning_rate_warmup_epochs"),
    *(
        f"{kind}_opt_{key}"
        for kind in ("lars", "sgd")
        for key in ("base_learning_rate", "weight_decay")
    ),
    *("opt_base_learning_rate", "opt_weight_decay", "lars_opt_learning_rate_warmup_epochs"),
)
WANTED = {*MARKS, ACCURACY, "tracked_stats", *RATES, *SAID}
# A number of more digits than any float has is as good as infinite; Python converts no more than
# 4300.
_DECODER = json.JSONDecoder(parse_int=lambda digits: int(digits) if len(digits) < 300 else math.inf)


class Marks:
    """The events of one key: `rows` holds three numbers of each, one after the other, as millions
    of them may come.

    The numbers are: when [ms]; what the event counts, samples (`in_samples`) or epochs; and
    `epoch_count` of blocks or the value of accuracies. NaN for what an event does not say.
    """

    def __init__(self) -> None:
        self.rows, self.in_samples, self._capacity = array("d"), False, ROWS
        self._last: tuple[float, float, float] | None = None

    def add(self, ms: float, count: float, value: float, in_samples: bool = False) -> None:
        """Add an event, unless it repeats the last one, as other ranks write it."""
        row = (ms, count, value)
        if row != self._last:  # else another rank's
            self._last = row
            self.rows.extend(row)
            self.in_samples |= in_samples
            if len(self.rows) > self._capacity:
                self._drop_repeats()

    def extend(self, other: Marks) -> None:
        """Add the events of another part of the log."""
        self.rows.extend(other.rows)
        self.in_samples |= other.in_samples
        if len(self.rows) > self._capacity:
            self._drop_repeats()

    def _drop_repeats(self) -> None:
        """Drop repeated events: a log of a gigabyte has the same events many times."""
        import numpy as np

        # As whole numbers of the same bits, so that NaN equals NaN; times stay in their order.
        kept = np.unique(np.frombuffer(self.rows, dtype=np.int64).reshape(-1, 3), axis=0)
        self.rows = array("d", kept.tobytes())
        self._capacity = max(ROWS, 2 * len(self.rows))


@dataclass
class Log:
    """The contents of a log. `keys` has None for a key whose only value is null; `status` is that
    of the last `run_stop`, None without one; `rates` by their key [1/s].

    `statuses` are those of all ranks. `lines` is the number of its MLPerf lines, `damaged` the
    number of those that could not be read.
    """

    keys: dict[str, Any] = field(default_factory=dict)
    marks: dict[str, Marks] = field(
        default_factory=lambda: {key: Marks() for key in (*MARKS, ACCURACY)}
    )
    rates: dict[str, array[float]] = field(
        default_factory=lambda: {key: array("d") for key in RATES}
    )
    status: str | None = None
    statuses: set[str] = field(default_factory=set)
    lines: int = 0
    damaged: int = 0

    def join(self, other: Log) -> None:
        """Add the contents of the part of the same file that comes later."""
        self.keys = other.keys | {
            key: value for key, value in self.keys.items() if value is not None
        }
        for key, marks in other.marks.items():
            self.marks[key].extend(marks)
        for key, rates in other.rates.items():
            self.rates.setdefault(key, array("d")).extend(rates)
        self.status = other.status if other.status is not None else self.status
        self.statuses |= other.statuses
        self.lines += other.lines
        self.damaged += other.damaged


def read(path: Path) -> Log:
    """Read the log in a file; a large one in two processes, each with one half.

    Raises OSError, also for what is no regular file.
    """
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
    if size < LARGE or len(os.sched_getaffinity(0)) < 2:
        return _part(path, 0, size)
    with ProcessPoolExecutor(2, get_context("fork")) as pool:
        first, second = pool.map(_part, (path, path), (0, size // 2), (size // 2, size))
    first.join(second)
    return first


def _part(path: Path, start: int, end: int) -> Log:
    """Read the lines that begin from byte `start` to before byte `end`."""
    log, rest = Log(), b""
    with opened(path) as file:
        if start:
            file.seek(start - 1)
            start += len(file.readline()) - 1
        at = start
        while at < end and (piece := file.read(BLOCK)):
            line_end = piece.rfind(b"\n") + 1
            if at + len(piece) >= end:  # the last line may reach beyond
                piece = piece[: end - at]
                if not piece.endswith(b"\n"):
                    file.seek(at + len(piece))
                    piece += file.readline(BLOCK)
                line_end = len(piece)
            at += len(piece)
            if not line_end and len(rest) < BLOCK:
                rest += piece
                continue
            _scan(rest + piece[:line_end], log)
            rest = piece[line_end:]
    _scan(rest, log)
    return log


def _scan(block: bytes, log: Log) -> None:
    """Read every mark in a block into the log.

    Most lines are as mllog writes them: they are cut at their quotes and cost no JSON.
    """
    wanted = {
        key.encode() for key in WANTED if log.keys.get(key) is None
    }  # other ranks repeat this: their copies are not read
    add = {key.encode(): marks.add for key, marks in log.marks.items() if key != "run_stop"}
    rates, damaged = log.rates["throughput"].append, 0
    behind = block.split(TOKEN)
    for text in behind[1:]:
        parts = text.split(b'"', 40)
        if len(parts) > 18 and parts[11] == b"key":
            key = parts[13]
            if key not in wanted:
                continue
            last = parts[-1]
            if (
                last[-3:] == b"}}\n"
                and parts[15] == b"value"
                and parts[5] == b"time_ms"
                and b"\\" not in text
            ):
                try:  # white space is as free as in any JSON
                    value = parts[16].strip(b": ,")
                    if key in add:
                        number, name = NAN if value == b"null" else float(value), parts[-2]
                        if name == b"epoch_num" or name == b"first_epoch_num":
                            add[key](float(parts[6].strip(b": ,")), float(last[1:-3]), number)
                            continue
                        if name == b"epoch_count" and parts[-4] == b"first_epoch_num":
                            first = float(parts[-3].strip(b": ,"))
                            add[key](float(parts[6].strip(b": ,")), first, float(last[1:-3]))
                            continue
                    elif key == b"throughput":
                        rates(float(value))
                        continue
                except ValueError:
                    pass
        try:
            event, _ = _DECODER.raw_decode(text.decode(), len("OG "))
            if event["key"] in WANTED:
                _take(log, float(event["time_ms"]), event["key"], event["value"], event["metadata"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            damaged += not _take_other(log, text)
    log.lines += len(behind) - 1
    log.damaged += damaged


def _take_other(log: Log, text: bytes) -> bool:
    """Read an event in any other form, from behind a mark up to the line's end or the next mark;
    return False for no event.
    """
    text = text.partition(b"\n")[0]
    old = OLD.match(text)
    brace = text.find(b"{", old.end() if old else 0)
    if brace < 0:
        return False
    try:
        line, _ = _DECODER.raw_decode(text[brace:].decode("utf-8", "replace"))
        key = old[2].decode() if old else line["key"]
        if key in WANTED:
            ms = float(old[1]) * 1e3 if old else float(line["time_ms"])
            _take(log, ms, key, line.get("value"), line.get("metadata"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    return True


def _take(log: Log, ms: float, key: str, value: Any, metadata: Any) -> None:
    """Add an event, given as Python values, to the log."""
    metadata = metadata if isinstance(metadata, dict) else {}
    if ms != ms:
        raise ValueError("no time")
    if key in log.marks:
        in_samples = "samples_count" in metadata
        count = next((plain(metadata[name]) for name in COUNTS if name in metadata), math.nan)
        amount = plain(metadata.get("epoch_count")) if key == "block_start" else math.nan
        if key == ACCURACY:
            amount = plain(
                value["accuracy"] if isinstance(value, dict) and "accuracy" in value else value
            )
        log.marks[key].add(ms, count, amount, in_samples)
        if key == "run_stop":
            status = metadata.get("status")
            if status is None and isinstance(value, dict) and "success" in value:
                status = "success" if value["success"] else "aborted"
            log.status = (
                cut(printable(status)) if log.status is None or status is not None else log.status
            )
            log.statuses.add(str(log.status))
    elif key in RATES:
        _rate(log, key, value)
    elif key == "tracked_stats" and isinstance(value, dict):
        if name := next((name for name in RATES if name in value), None):
            _rate(log, f"tracked_stats.{name}", value[name])
    elif key in SAID and log.keys.get(key) is None:
        log.keys[key] = value


def _rate(log: Log, key: str, value: Any) -> None:
    number = plain(value)
    if number == number:
        log.rates.setdefault(key, array("d")).append(number)


def plain(value: Any) -> float:
    """Convert to a number, also if it was written as a string; infinite if it is too large for a
    float. Else NaN.
    """
    try:
        return float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        return math.nan
