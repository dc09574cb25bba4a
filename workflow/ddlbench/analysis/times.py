"""Steps and events to a run's measures of time.

Warm-up is cut here, never in the log: the first epoch; in a run of one epoch, the first tenth of its steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ddlbench.analysis.read import Record
from ddlbench.analysis.scaling import throughput
from ddlbench.columns import PROFILER, SHARING, UNKNOWN, Column, Values, Why
from ddlbench.record import Event, train_s
from ddlbench.spec import RunSpec

_PARTS = {
    "data_wait_s": "Waiting for images",
    "forward_s": "Forward pass",
    "backward_s": "Backward pass",
    "communication_s": "Waiting for gradients; null where the framework cannot measure it, then it is in the others",
    "optimizer_s": "The optimizer",
}
STEP_TIMES = list(_PARTS)  # the parts of a step, in the order in which it makes them
EPOCH_START = (
    "Start of an epoch: from asking the loader for the epoch to having its first batch, on rank 0. The first step's "
    "data wait includes it."
)


def _column(name: str, means: str, unit: str = "s") -> Column:
    return Column(name, "float64", means, unit, spoiled_by=(SHARING, PROFILER))


COLUMNS = (
    _column("throughput_images_per_s", "Training images divided by the wall time of their steps.", "images/s"),
    _column("epoch_s", "Training time of an epoch: its images divided by the throughput."),
    _column("validation_s", "Mean time of a validation after the first, or of the only one."),
    _column("train_s", "The whole training as it was made: with validation and warm-up, without interruptions."),
    _column(
        "full_train_s",
        "Training time of all epochs: `train_s + (of_epochs - epochs) * (epoch_s + validation_s)`.",
    ),
    *(_column(name, f"{means}. Mean over steps and ranks.") for name, means in _PARTS.items()),
    _column("compute_s", "`forward_s + backward_s + optimizer_s`."),
    _column(
        "communication_transfer_s",
        "Per step, transfer time is the minimum of `communication_s` over ranks; the rest is waiting. In a synchronous "
        "step every rank waits for the last one, which waits for nobody. Null with one worker.",
    ),
    _column("communication_wait_s", "`communication_s - communication_transfer_s`: waiting for slower ranks."),
    _column("epoch_start_s", f"{EPOCH_START} Mean over the epochs after the first, or of the only one."),
)
MEDIANS = (
    Column("run", "str", "The run, a timed one."),
    *(Column(name, "float64", f"{means}. Median over steps and ranks.", "s") for name, means in _PARTS.items()),
)


def after_warm_up(steps: pd.DataFrame, spec: RunSpec) -> pd.DataFrame:
    """The steps that count; none if warm-up was all there is."""
    if spec.epochs > 1:
        return steps[steps["epoch"] > 0]
    return steps[steps["step"] >= max(1, steps["step"].nunique() // 10)]


def wall_s(steps: pd.DataFrame) -> pd.Series[float]:
    """Wall time of each epoch's steps [s]: that of the rank which needed longest."""
    step_s = steps[STEP_TIMES].sum(axis=1)  # a part that was not measured is in the others
    return step_s.groupby([steps["epoch"], steps["rank"]]).sum().groupby(level="epoch").max()


def medians(record: Record) -> dict[str, float | str]:
    """A timed run's row of table `step_times`."""
    timed = after_warm_up(record.steps, record.spec)
    return {"run": record.spec.id} | {name: float(timed[name].median()) for name in STEP_TIMES}


def measures(record: Record) -> Values:
    """COLUMNS of a timed run."""
    spec, said = record.spec, record.said("ddlbench_not_measured", {})
    values: Values = {column.name: Why("its few steps are all warm-up") for column in COLUMNS}
    values["train_s"] = train_s(record.last)
    values |= _after(after_warm_up(record.steps, spec), record)
    left = spec.full_epochs - spec.epochs
    if not left:
        values["full_train_s"] = values["train_s"]
    elif not isinstance(values["epoch_s"], Why):
        values["full_train_s"] = values["train_s"] + left * (values["epoch_s"] + values["validation_s"])
    values["epoch_start_s"] = _epoch_start_s(record.events)
    split = ("communication_transfer_s", "communication_wait_s")
    if spec.workers == 1:
        values |= dict.fromkeys(split, Why("one worker waits for nobody"))
    if pd.isna(values["communication_s"]):
        values["communication_s"] = why = Why(said.get("communication_s", UNKNOWN))
        if spec.workers > 1:
            values |= dict.fromkeys(split, why)
    return values


def _after(timed: pd.DataFrame, record: Record) -> Values:
    """What counts only after warm-up."""
    if timed.empty:
        return {}
    rate = throughput(float(timed["images"].sum()), float(wall_s(timed).sum()))
    means = {name: float(timed[name].mean()) for name in STEP_TIMES}
    values: Values = {"throughput_images_per_s": rate, "epoch_s": record.images / rate, **means}
    values["compute_s"] = means["forward_s"] + means["backward_s"] + means["optimizer_s"]
    values["validation_s"] = _validation_s(record.events)
    if record.spec.workers > 1:
        transfer = float(timed.groupby("step")["communication_s"].min().mean())
        values["communication_transfer_s"] = transfer
        values["communication_wait_s"] = means["communication_s"] - transfer
    return values


def _validation_s(events: Sequence[Event]) -> float:
    at = {
        key: {e.metadata["epoch_num"]: e.time_s for e in events if e.key == key} for key in ("eval_start", "eval_stop")
    }
    took = [at["eval_stop"][n] - at["eval_start"][n] for n in sorted(at["eval_stop"])]
    return float(np.mean(took[1:] or took))


def _epoch_start_s(events: Sequence[Event]) -> float | Why:
    starts = {e.metadata["epoch_num"]: e.value for e in events if e.key == "ddlbench_epoch_start_s"}
    later = [value for number, value in starts.items() if number > 1]
    return float(np.mean(later or list(starts.values()))) if starts else Why(UNKNOWN)
