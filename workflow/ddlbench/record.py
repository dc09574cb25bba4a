"""The record of a run: `run.mllog` (MLPerf log lines) and `steps.parquet` (one row per step and rank).

Ranks write through `RankLog`; `ddlbench.run` joins what they wrote; `analysis/collect.py` reads it. `read_log` also
reads the logs that MLCommons publishes.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from ddlbench.spec import RunSpec

MLLOG = "run.mllog"
STEPS = "steps.parquet"
KERNELS = "kernels.parquet"  # of profiled runs: rank/profiler.py says what is in it


class StepRow(NamedTuple):
    """One row of `steps.parquet`: one step on one rank. Its fields are the columns."""

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
        parts = (self.data_wait_s, self.forward_s, self.backward_s, self.communication_s, self.optimizer_s)
        return sum(part or 0.0 for part in parts)


STEP_COLUMNS = {name: "int32" if kind is int else "float64" for name, kind in get_type_hints(StepRow).items()}


@dataclass
class RankLog:
    """What one rank writes into the run's folder; only rank 0 writes the MLPerf log.

    A log that goes on from a checkpoint keeps the first `keep_bytes` of what is there.
    """

    folder: Path
    rank: int
    keep_bytes: int | None = None

    def __post_init__(self) -> None:
        from mlperf_logging.mllog.mllog import MLLogger

        if self.rank == 0 and self.keep_bytes is not None:
            os.truncate(self.folder / MLLOG, self.keep_bytes)
        logger = logging.Logger("ddlbench.mllog")
        if self.rank == 0:
            logger.addHandler(logging.FileHandler(self.folder / MLLOG))
        else:
            logger.addHandler(logging.NullHandler())
        root = str(Path(__file__).resolve().parents[1])
        self.mllog = MLLogger(logger=logger, root_dir=root, default_stack_offset=2)

    def event(self, key: str, value: Any = None, **metadata: Any) -> None:
        """A point in time."""
        self.mllog.event(key, value, metadata or None)

    def start(self, key: str, **metadata: Any) -> None:
        """The beginning of an interval; MLPerf keys end in `_start`."""
        self.mllog.start(key, None, metadata or None)

    def stop(self, key: str, **metadata: Any) -> None:
        """The end of an interval; MLPerf keys end in `_stop`."""
        self.mllog.end(key, None, metadata or None)

    def settings(self, spec: RunSpec, facts: dict[str, Any], train_images: int, val_images: int) -> None:
        """Everything that a reader needs to know about the run, under MLPerf's keys where there are some."""
        from mlperf_logging.mllog import constants as c

        self.event(c.SUBMISSION_BENCHMARK, c.RESNET)
        self.event(c.SUBMISSION_DIVISION, c.OPEN)
        self.event(c.SUBMISSION_ORG, "ddlbench")
        self.event(c.SUBMISSION_PLATFORM, spec.machine)
        self.event(c.SUBMISSION_STATUS, "research")
        self.event(c.GLOBAL_BATCH_SIZE, spec.global_batch)
        self.event(c.SEED, spec.seed)
        self.event(c.OPT_NAME, spec.recipe.optimizer)
        self.event(c.OPT_BASE_LR, spec.recipe.base_lr)
        self.event(c.OPT_LR_WARMUP_EPOCHS, spec.recipe.warmup_epochs)
        self.event(c.OPT_WEIGHT_DECAY, spec.recipe.weight_decay)
        self.event(c.TRAIN_SAMPLES, train_images)
        self.event(c.EVAL_SAMPLES, val_images)
        self.event("ddlbench_spec", json.loads(spec.to_json()))
        self.event("ddlbench_facts", facts)

    def bytes_written(self) -> int:
        """The size of the MLPerf log so far; 0 on ranks that write none."""
        return (self.folder / MLLOG).stat().st_size if self.rank == 0 else 0

    def write_steps(self, rows: Sequence[StepRow]) -> None:
        """Steps that follow each other, as a file of their own: `steps-<rank>-<first step>.parquet`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in STEP_COLUMNS.items()])
        columns = zip(zip(*rows, strict=True), schema, strict=True)
        table = pa.table([pa.array(values, type=column.type) for values, column in columns], schema=schema)
        pq.write_table(table, self.folder / f"steps-{self.rank}-{rows[0].step:09d}.parquet")


def drop_steps(folder: Path, rank: int, from_step: int) -> None:
    """Forget what a rank wrote of this step and later ones: it is made again from a checkpoint at this step."""
    for part in _parts(folder, rank):
        if int(part.stem.split("-")[2]) >= from_step:
            part.unlink()


def join_steps(folder: Path, workers: int) -> None:
    """All ranks' steps into one `steps.parquet`. Raises FileNotFoundError naming a rank that left none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = []
    for rank in range(workers):
        of_rank = _parts(folder, rank)
        if not of_rank:
            raise FileNotFoundError(2, "no steps", str(folder / f"steps-{rank}-*.parquet"))
        parts += of_rank
    pq.write_table(pa.concat_tables([pq.read_table(p) for p in parts]), folder / STEPS)
    for part in parts:
        part.unlink()


def _parts(folder: Path, rank: int) -> list[Path]:
    return sorted(folder.glob(f"steps-{rank}-*.parquet"))


@dataclass(frozen=True)
class Event:
    """One MLPerf log line; `time_s` is seconds since the Unix epoch."""

    key: str
    value: Any
    metadata: dict[str, Any]
    time_s: float


def read_log(path: Path) -> Iterator[Event]:
    """The MLPerf lines of a file in their order; lines of other programs between them are passed over."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        yield from events(lines)


def events(lines: Iterable[str]) -> Iterator[Event]:
    """The MLPerf lines among these."""
    for line in lines:
        marker = line.find(":::MLL")
        brace = line.find("{", marker)
        if marker < 0 or brace < 0:
            continue
        try:
            data, _ = json.JSONDecoder().raw_decode(line[brace:])
        except json.JSONDecodeError:  # a line cut off when its writer was killed
            continue
        yield Event(data["key"], data.get("value"), data.get("metadata") or {}, data["time_ms"] / 1e3)


def train_s(last: Mapping[str, Event]) -> float:
    """How long a run trained, with validation, without interruptions [s]. `last`: the last event of each key."""
    if "ddlbench_elapsed_s" in last:
        return float(last["ddlbench_elapsed_s"].value)
    return last["run_stop"].time_s - last["run_start"].time_s
