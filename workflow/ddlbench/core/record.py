"""The record of a run: `run.mllog` (MLPerf log lines) and `steps.parquet` (one row per step and rank).

Rank 0 writes through `RankLog`, for all ranks (`train/steps.py` gathers their rows); `ddlbench.run` makes the table of
what it wrote; `analysis/collect.py` reads it. `read_log` also reads the logs that MLCommons publishes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from ddlbench.core.files import aside, force, opened_text, read_bytes, sha256
from ddlbench.core.spec import RunSpec

if TYPE_CHECKING:
    import numpy as np

    Rows = np.ndarray[Any, np.dtype[np.void]]

MLLOG = "run.mllog"
STEPS = "steps.parquet"
ROWS = "steps.rows"  # while the run is made: rows as they come, one after the other, of `step_type`
WEIGHTS = "weights.pt"  # the model's state dict at the end, of runs whose model inference asks (`inference/`)
KERNELS = "kernels.parquet"  # of profiled runs: train/profiler.py says what is in it
FLOPS = "flops-deepspeed.json"  # of runs with option flops_profiler: what DeepSpeed counts of each module
FLOPS_COUNTED = "flops.json"  # beside it: PyTorch's count of each module's forward pass over one picture
SUMMARY = "summary.jsonl"  # what tables need of the record (`records/ours.py`)
COMMS = "comms.txt"  # of runs with option comms_logger: DeepSpeed's table
# What tables read beside the log.
READ = (STEPS, KERNELS, FLOPS, FLOPS_COUNTED, COMMS)
# What a run leaves beside its log and its steps, if it was told to.
EXTRAS = (KERNELS, WEIGHTS, "nsys-*", FLOPS, FLOPS_COUNTED, COMMS)
SEAL = "ddlbench_seal"  # the last line of a record's log
PIECE = 1 << 18  # rows that are joined at once
UNSEALED = "0" * 64  # stands in the seal while its SHA-256 is computed
DECODER = json.JSONDecoder()


class StepPart(NamedTuple):
    """A part of a step: how figures name it, and what it is."""

    word: str
    means: str


# The parts of a step, in the order in which it makes them: columns of `steps.parquet` [s]. What they add up to is the
# step; those in COMPUTE are the rank's own work.
STEP_PARTS = {
    "data_wait_s": StepPart("data wait", "Waiting for images"),
    "forward_s": StepPart("forward", "Forward pass"),
    "backward_s": StepPart("backward", "Backward pass"),
    "communication_s": StepPart(
        "communication",
        "Waiting for gradients, and for parameters that other ranks update (ZeRO 1, 2); null where the framework "
        "cannot measure it, then it is in the others",
    ),
    "optimizer_s": StepPart("optimizer", "The optimizer"),
}
COMPUTE = ["forward_s", "backward_s", "optimizer_s"]


class StepRow(NamedTuple):
    """One row of `steps.parquet`: one step on one rank. Its fields are the columns; `train/steps.py` fills them."""

    epoch: int  # from 0
    step: int  # from 0, over the whole run
    rank: int
    images: int  # of this rank; 0 if none were left for it
    lr: float
    loss: float  # summed over ranks it is the mean over the step's images
    data_wait_s: float  # of an epoch's first step: since the loader was asked for the epoch
    forward_s: float
    backward_s: float
    communication_s: float | None  # the step waited for gradients; None where that is not measured
    optimizer_s: float
    end_s: float  # since training began on this rank, without interruptions

    @property
    def took_s(self) -> float:
        """The whole step, from the end of the one before or the epoch's beginning."""
        return sum(getattr(self, part) or 0.0 for part in STEP_PARTS)


# Times and losses are measured to fewer digits than float32 has.
STEP_COLUMNS = {
    name: "int32" if kind is int else "float64" if name == "lr" else "float32"
    for name, kind in get_type_hints(StepRow).items()
}
NULLABLE = {name for name, kind in get_type_hints(StepRow).items() if kind == float | None}


def step_type() -> np.dtype[np.void]:
    """A StepRow in bytes."""
    import numpy as np

    return np.dtype([(name, np.dtype(kind).newbyteorder("<")) for name, kind in STEP_COLUMNS.items()])


def packed(rows: Sequence[StepRow]) -> Rows:
    """Rows as an array; NaN for None."""
    import numpy as np

    nan = float("nan")
    return np.array([tuple(nan if value is None else value for value in row) for row in rows], dtype=step_type())


class _WholeFile(logging.FileHandler):
    """A log in which no line may be missing: logging itself goes on when the disk is full."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Raise what kept a line from being written."""
        raise


@dataclass
class RankLog:
    """What one rank writes into the run's folder: only rank 0 writes anything.

    A log that goes on from a checkpoint keeps the first bytes of what is there, as many as `keep` says of each file.
    Lines say that they were written at `at_ms` [ms since 1970]; None: now. Raises OSError if a file has fewer bytes.
    """

    folder: Path
    rank: int
    keep: Mapping[str, int] | None = None
    name: str = MLLOG
    at_ms: int | None = None

    def __post_init__(self) -> None:
        from mlperf_logging.mllog.mllog import MLLogger

        for name, size in (self.keep or {}).items() if self.rank == 0 else ():
            path = self.folder / name
            if path.stat().st_size < size:
                raise OSError(errno.EIO, f"is shorter than its checkpoint says ({size} bytes)", str(path))
            os.truncate(path, size)  # what came after the checkpoint is made again
        logger = logging.Logger("ddlbench.mllog")
        if self.rank == 0:
            logger.addHandler(_WholeFile(self.folder / self.name))
        else:
            logger.addHandler(logging.NullHandler())
        root = str(Path(__file__).resolve().parents[2])
        self.mllog = MLLogger(logger=logger, root_dir=root, default_stack_offset=2)

    def event(self, key: str, value: Any = None, **metadata: Any) -> None:
        """A point in time."""
        self.mllog.event(key, value, metadata or None, time_ms=self.at_ms)

    def start(self, key: str, **metadata: Any) -> None:
        """The beginning of an interval; MLPerf keys end in `_start`."""
        self.mllog.start(key, None, metadata or None, time_ms=self.at_ms)

    def stop(self, key: str, **metadata: Any) -> None:
        """The end of an interval; MLPerf keys end in `_stop`."""
        self.mllog.end(key, None, metadata or None, time_ms=self.at_ms)

    def settings(self, spec: RunSpec, facts: dict[str, Any], train_images: int, val_images: int | None = None) -> None:
        """Everything that a reader needs to know about the run, under MLPerf's keys where there are some. Without
        `val_images` it has no recipe."""
        from mlperf_logging.mllog import constants as c

        self.event(c.SUBMISSION_BENCHMARK, spec.model if val_images is None else c.RESNET)
        self.event(c.SUBMISSION_DIVISION, c.OPEN)
        self.event(c.SUBMISSION_ORG, "ddlbench")
        self.event(c.SUBMISSION_PLATFORM, spec.machine)
        self.event(c.SUBMISSION_STATUS, "research")
        self.event(c.GLOBAL_BATCH_SIZE, spec.global_batch)
        self.event(c.SEED, spec.seed)
        self.event(c.TRAIN_SAMPLES, train_images)
        if val_images is not None:
            self.event(c.OPT_NAME, spec.recipe.optimizer)
            self.event(c.OPT_BASE_LR, spec.recipe.base_lr)
            self.event(c.OPT_LR_WARMUP_EPOCHS, spec.recipe.warmup_epochs)
            self.event(c.OPT_WEIGHT_DECAY, spec.recipe.weight_decay)
            self.event(c.EVAL_SAMPLES, val_images)
        self.event("ddlbench_spec", json.loads(spec.to_json()))
        self.event("ddlbench_facts", facts)

    def bytes_written(self) -> dict[str, int]:
        """The size of each file so far, once it is on the disk: what `keep` wants. Empty on ranks that write none."""
        sizes = {}
        for name in (MLLOG, ROWS) if self.rank == 0 else ():
            with (self.folder / name).open("ab") as file:
                force(file.fileno())
                sizes[name] = file.tell()
        return sizes

    def write_steps(self, rows: Rows) -> None:
        """Rows of any ranks, behind those that are there."""
        with (self.folder / ROWS).open("ab") as file:
            file.write(rows.tobytes())


def join_steps(folder: Path, workers: int) -> None:
    """`steps.parquet` of all rows that the run left, sorted by step and rank. Raises OSError if a rank left none.

    It holds `PIECE` rows or two at once: ranks write rows of some steps, then rows of later ones.
    """
    import numpy as np

    path = folder / ROWS
    if path.stat().st_size % step_type().itemsize:
        raise OSError(errno.EIO, "ends within a row", str(path))
    pieces = range(0, path.stat().st_size // step_type().itemsize, PIECE)

    def piece(first: int) -> Rows:
        return np.fromfile(path, step_type(), PIECE, offset=first * step_type().itemsize)

    missing, spans = set(range(workers)), []
    for first in pieces:
        rows = piece(first)
        missing -= set(np.unique(rows["rank"]).tolist())
        spans.append((first, rows["step"].min(), rows["step"].max()))
    if missing:
        raise FileNotFoundError(errno.ENOENT, f"no steps of rank {min(missing)}", str(path))
    at_once = max(1, PIECE // workers)  # steps
    with writing_table(folder / STEPS) as write:
        for step in range(0, max(high for *_, high in spans) + 1, at_once):
            parts = (piece(first) for first, low, high in spans if low < step + at_once and high >= step)
            rows = np.concatenate([part[part["step"] // at_once == step // at_once] for part in parts])
            write(rows[np.lexsort((rows["rank"], rows["step"]))])


@contextmanager
def writing_table(path: Path) -> Iterator[Callable[[Rows], None]]:
    """What writes rows to Parquet, some at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    floats = [name for name, kind in STEP_COLUMNS.items() if kind == "float32"]
    schema = pa.schema([(name, pa.from_numpy_dtype(kind)) for name, kind in STEP_COLUMNS.items()])
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        use_dictionary=[name for name in STEP_COLUMNS if name not in floats],
        # What is measured hardly repeats: its first bytes, laid side by side, are what compresses.
        column_encoding=dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),
    ) as writer:

        def write(rows: Rows) -> None:
            columns = {name: pa.array(rows[name].copy(), from_pandas=name in NULLABLE) for name in STEP_COLUMNS}
            writer.write_table(pa.table(columns, schema=schema))

        yield write


def seal(folder: Path) -> None:
    """Add the last line to a record's log: SHA-256 of each file beside it, and one of the log, this line included.

    The log is replaced by one that is on the disk as a whole. Raises OSError.
    """
    files = [path for pattern in (STEPS, *EXTRAS) for path in sorted(folder.glob(pattern))]
    with aside(folder / MLLOG, through=True) as hidden:
        hidden.write_bytes((folder / MLLOG).read_bytes())
        log = RankLog(folder, 0, name=hidden.name)
        log.event("ddlbench_seal", {"files": {path.name: sha256(path) for path in files}, "sha256": UNSEALED})
        data = hidden.read_bytes()
        before, _, after = data.rpartition(UNSEALED.encode())
        hidden.write_bytes(before + hashlib.sha256(data).hexdigest().encode() + after)


def sealed(log: Path) -> dict[str, str] | None:
    """SHA-256 of the files beside a log, by name, as its seal says; None if its last line is no seal.

    Raises ValueError if the log is not the one that was sealed.
    """
    data = read_bytes(log)
    last = next(events([data[data.rfind(b"\n", 0, -1) + 1 :].decode(errors="replace")]), None)
    if last is None or last.key != SEAL or data[-1:] != b"\n":
        return None
    files, digest = last.value["files"], last.value["sha256"].encode()
    before, _, after = data.rpartition(digest)
    if hashlib.sha256(before + UNSEALED.encode() + after).hexdigest().encode() != digest:
        raise ValueError("is not as it was when its run ended: its seal is of another log")
    return dict(files)


@dataclass(frozen=True)
class Event:
    """One MLPerf log line; `time_s` is seconds since the Unix epoch."""

    key: str
    value: Any
    metadata: dict[str, Any]
    time_s: float


def read_log(path: Path) -> Iterator[Event]:
    """The MLPerf lines of a file in their order; lines of other programs between them are passed over. Raises OSError,
    also for what is no regular file."""
    with opened_text(path) as lines:
        yield from events(lines)


def recorded_spec(log: Path) -> Any:
    """What a log says of its run, in its first lines; None if it does not. Raises OSError, ValueError, KeyError."""
    return next((event.value for event in read_log(log) if event.key == "ddlbench_spec"), None)


def events(lines: Iterable[str]) -> Iterator[Event]:
    """The MLPerf lines among these."""
    for line in lines:
        marker = line.find(":::MLL")
        brace = line.find("{", marker)
        if marker < 0 or brace < 0:
            continue
        try:
            data, _ = DECODER.raw_decode(line[brace:])
        except json.JSONDecodeError:  # a line cut off when its writer was killed
            continue
        yield Event(data["key"], data.get("value"), data.get("metadata") or {}, data["time_ms"] / 1e3)


def ended_well(last: Mapping[str, Event]) -> bool:
    """Say whether a training came to its end. `last`: the last event of each key."""
    return "run_stop" in last and last["run_stop"].metadata.get("status") == "success"


def train_s(last: Mapping[str, Event]) -> float:
    """How long a run trained, with validation, without interruptions [s]. `last`: the last event of each key."""
    if "ddlbench_elapsed_s" in last:
        return float(last["ddlbench_elapsed_s"].value)
    return last["run_stop"].time_s - last["run_start"].time_s


def began_s(last: Mapping[str, Event], first_s: float) -> float:
    """When a run's first process began [s since 1970]. `first_s`: when its log began."""
    ranks = (last["ddlbench_ranks"].value if "ddlbench_ranks" in last else None) or []
    began: list[float] = [rank["started"] for rank in ranks if isinstance(rank.get("started"), int | float)]
    return min([first_s, *began])


def beside_s(last: Mapping[str, Event], first_s: float) -> float:
    """What a run took beside its training: to begin and to end [s]. `first_s`: when its log began [s since 1970]."""
    ended = max(event.time_s for event in last.values() if event.key != SEAL)  # which may come a year later
    before, after = last["run_start"].time_s - began_s(last, first_s), ended - last["run_stop"].time_s
    return max(0.0, before) + max(0.0, after)
