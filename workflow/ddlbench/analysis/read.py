"""One run's record, read and checked: the only way by which a record comes into the tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis import trust
from ddlbench.analysis.refusals import RefusedError
from ddlbench.core.files import sha256
from ddlbench.core.record import (
    KERNELS,
    MLLOG,
    READ,
    SEALED_BEFORE,
    STEP_COLUMNS,
    STEPS,
    Event,
    ended_well,
    read_log,
    sealed,
)
from ddlbench.core.spec import RunSpec, steps_per_epoch


@dataclass(frozen=True)
class Record:
    """A run's record. `last` holds the last event of each key. `success`: it ended well; else there are no steps.

    `steps` has the columns of `record.STEP_COLUMNS`, sorted by step and rank. `kernels` is None where no profiler left
    any.
    """

    folder: Path
    spec: RunSpec
    events: list[Event]
    last: dict[str, Event]
    images: int
    success: bool
    steps: pd.DataFrame
    kernels: pd.DataFrame | None = None

    def said(self, key: str, default: Any = None) -> Any:
        """The value of the last event of this key; `default` without one."""
        value = self.last[key].value if key in self.last else None
        return default if value is None else value

    @property
    def timed(self) -> bool:
        """Whether the run had the machine to itself and carried no profiler, so that its times mean something."""
        return self.spec.timed and not self.spec.profiled


def read(folder: Path, *, before: bool = False) -> Record:
    """The record in a run's folder. With `before` it may be one of version 0.1.0, which wrote no seal.

    Raises RefusedError, naming the file, if it is not that run's, is not as it was sealed, or cannot be true.
    """
    log = folder / MLLOG
    try:
        return _read(folder, log, before)
    except RefusedError:
        raise
    except Exception as error:  # whatever stands in a file must not keep the other runs from their tables
        raise RefusedError(log, f"cannot be understood ({type(error).__name__}: {error})") from error


def _read(folder: Path, log: Path, before: bool) -> Record:
    events = list(read_log(log))
    last = {event.key: event for event in events}
    digests = _digests(log, last, before)
    if "ddlbench_spec" not in last:
        raise RefusedError(log, "has no ddlbench_spec, so nothing says which run it is of")
    spec = RunSpec.from_json(json.dumps(last["ddlbench_spec"].value))
    if spec.id != folder.name:
        raise RefusedError(log, f"is the record of run {spec.id}")
    trust.check_log(log, events, spec)
    images: int = last["train_samples"].value
    if not ended_well(last):
        return Record(folder, spec, events, last, images, False, pd.DataFrame())
    for name in READ:
        trust.check_digest(folder / name, digests.get(name))
    steps = _table(folder / STEPS).reset_index(drop=True)
    trust.check_steps(folder / STEPS, steps, spec, images)
    trust.check_clocks(folder / STEPS, steps, _pauses(events), steps_per_epoch(images, spec.global_batch))
    steps = steps.reindex(columns=[*STEP_COLUMNS])  # null where the record is of before a column
    # Sums of millions of float32 would lose digits.
    steps = steps.astype({name: "float64" for name, kind in STEP_COLUMNS.items() if kind == "float32"})
    steps = steps.sort_values(["step", "rank"])
    kernels = None
    if spec.profiled and (folder / KERNELS).exists():
        kernels = _table(folder / KERNELS)
        trust.check_kernels(folder / KERNELS, kernels)
    return Record(folder, spec, events, last, images, True, steps, kernels)


def _digests(log: Path, last: Mapping[str, Event], before: bool) -> dict[str, str]:
    """SHA-256 that the files beside the log must have, by name; of version 0.1.0 what it did not say is as it is."""
    files = sealed(log)
    if files is not None:
        return files
    if SEALED_BEFORE not in last:
        raise RefusedError(log, "has no seal as its last line: it is cut off or was changed")
    if not before:
        todo = f"ddlbench seal {log.parent.parent}: checks the records of version 0.1.0 there, and seals them"
        raise RefusedError(log, "has no seal yet: it is of version 0.1.0", todo)
    said = {STEPS: last[SEALED_BEFORE].value}
    if "ddlbench_kernels_sha256" in last:
        said[KERNELS] = last["ddlbench_kernels_sha256"].value
    return {name: sha256(log.parent / name) for name in READ if (log.parent / name).exists()} | said


def _pauses(events: Sequence[Event]) -> set[int] | None:
    """After which steps a checkpoint was written or the run went on from one; None where the log does not say it."""
    if any(event.key == SEALED_BEFORE for event in events):
        return None
    resumed = {event.value["step"] for event in events if event.key == "ddlbench_resumed"}
    return resumed | {event.value for event in events if event.key == "ddlbench_checkpoint"}


def _table(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except Exception as error:  # pyarrow has many kinds
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise RefusedError(path, f"cannot be read ({first})") from error
