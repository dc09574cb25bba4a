"""One run's record, read and checked: the only way by which a record comes into the tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis import trust
from ddlbench.analysis.refusals import RefusedError
from ddlbench.record import KERNELS, MLLOG, STEP_COLUMNS, STEPS, Event, read_log
from ddlbench.spec import RunSpec


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


def read(folder: Path) -> Record:
    """The record in a run's folder. Raises RefusedError, naming the file, if it is not that run's or cannot be true."""
    log = folder / MLLOG
    try:
        return _read(folder, log)
    except RefusedError:
        raise
    except Exception as error:  # whatever stands in a file must not keep the other runs from their tables
        raise RefusedError(log, f"cannot be understood ({type(error).__name__}: {error})") from error


def _read(folder: Path, log: Path) -> Record:
    events = list(read_log(log))
    last = {event.key: event for event in events}
    if "ddlbench_spec" not in last:
        raise RefusedError(log, "has no ddlbench_spec, so nothing says which run it is of")
    spec = RunSpec.from_json(json.dumps(last["ddlbench_spec"].value))
    if spec.id != folder.name:
        raise RefusedError(log, f"is the record of run {spec.id}")
    trust.check_log(log, events, spec)
    images: int = last["train_samples"].value
    if last.get("run_stop") is None or last["run_stop"].metadata.get("status") != "success":
        return Record(folder, spec, events, last, images, False, pd.DataFrame())
    for name, key in ((STEPS, "ddlbench_steps_sha256"), (KERNELS, "ddlbench_kernels_sha256")):
        if key in last:  # older records do not say it
            trust.check_digest(folder / name, last[key].value)
    steps = _table(folder / STEPS).reset_index(drop=True)
    trust.check_steps(folder / STEPS, steps, spec, images)
    steps = steps.reindex(columns=[*STEP_COLUMNS])  # null where the record is of before a column
    # Sums of millions of float32 would lose digits.
    steps = steps.astype({name: "float64" for name, kind in STEP_COLUMNS.items() if kind == "float32"})
    steps = steps.sort_values(["step", "rank"])
    kernels = None
    if spec.profiled and (folder / KERNELS).exists():
        kernels = _table(folder / KERNELS)
        trust.check_kernels(folder / KERNELS, kernels)
    return Record(folder, spec, events, last, images, True, steps, kernels)


def _table(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except Exception as error:  # pyarrow has many kinds
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise RefusedError(path, f"cannot be read ({first})") from error
