"""What a rank writes while a run is made. Rank 0 writes for all ranks (`train/steps.py` gathers
their rows).
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlbench.core.files import force
from ddlbench.core.record import MLLOG, ROWS
from ddlbench.core.spec import RunSpec

if TYPE_CHECKING:
    from ddlbench.core.step_rows import Rows


class _WholeFile(logging.FileHandler):
    """A log in which no line may be missing: logging itself goes on when the disk is full."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Raise the error because of which a line could not be written."""
        raise


@dataclass
class RankLog:
    """The files that one rank writes into the run's folder. Only rank 0 writes anything.

    A log that continues from a checkpoint keeps the first bytes of each file; `keep` has their
    number. The time of its lines is `at_ms` [ms since 1970]; None: now. Raises OSError if a file
    has fewer bytes.
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
                raise OSError(
                    errno.EIO, f"is shorter than its checkpoint says ({size} bytes)", str(path)
                )
            os.truncate(path, size)  # what came after the checkpoint is made again
        logger = logging.Logger("ddlbench.mllog")
        if self.rank == 0:
            logger.addHandler(_WholeFile(self.folder / self.name))
        else:
            logger.addHandler(logging.NullHandler())
        root = str(Path(__file__).resolve().parents[2])
        self.mllog = MLLogger(logger=logger, root_dir=root, default_stack_offset=2)

    def event(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Write an event: a point in time."""
        self.mllog.event(key, value, metadata or None, time_ms=self.at_ms)

    def start(self, key: str, **metadata: Any) -> None:
        """Write the beginning of an interval; MLPerf keys end in `_start`."""
        self.mllog.start(key, None, metadata or None, time_ms=self.at_ms)

    def stop(self, key: str, **metadata: Any) -> None:
        """Write the end of an interval; MLPerf keys end in `_stop`."""
        self.mllog.end(key, None, metadata or None, time_ms=self.at_ms)

    def write_settings(
        self, spec: RunSpec, facts: dict[str, Any], train_images: int, val_images: int | None = None
    ) -> None:
        """Write everything that a reader needs to know about the run, under MLPerf's keys where
        there are some. Without `val_images` the run has no recipe.
        """
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
        """Force each file to the disk, and return its size, for `keep`. Empty on ranks that write
        none.
        """
        sizes = {}
        for name in (MLLOG, ROWS) if self.rank == 0 else ():
            with (self.folder / name).open("ab") as file:
                force(file.fileno())
                sizes[name] = file.tell()
        return sizes

    def write_steps(self, rows: Rows) -> None:
        """Append rows of any ranks to the file of rows."""
        with (self.folder / ROWS).open("ab") as file:
            file.write(rows.tobytes())
