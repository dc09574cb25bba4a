"""Accuracies and losses of a run, and the rows of its epochs and learning rates."""

from typing import Any

import numpy as np
import pandas as pd

from ddlbench.analysis import times
from ddlbench.analysis.record import Record
from ddlbench.analysis.scaling import throughput
from ddlbench.core import registry
from ddlbench.core.columns import Column, Values, Why, types
from ddlbench.core.mllog import starts_s

_NULL = "Null where the loader has nothing to learn from"
_PART = f"{_NULL}, or only some of the epochs were trained."
COLUMNS = (
    Column("final_top1", "float64", f"Top-1 accuracy after the last epoch, a fraction. {_PART}"),
    Column("best_top1", "float64", f"Best top-1 accuracy of any epoch, a fraction. {_PART}"),
    Column("final_top5", "float64", f"Top-5 accuracy after the last epoch, a fraction. {_PART}"),
    Column("best_top5", "float64", f"Best top-5 accuracy of any epoch, a fraction. {_PART}"),
    Column("final_loss", "float64", "Mean loss of the steps of the last epoch that was trained."),
)
EPOCHS = (
    Column("run", "str", "The run, a successful one."),
    Column("epoch", "int64", "The epoch, counted from 1."),
    Column("lr", "float64", "Learning rate of the epoch's first step."),
    Column("lr_end", "float64", "Learning rate of the epoch's last step."),
    Column("loss", "float64", "Mean loss of the epoch's steps."),
    Column("top1", "float64", f"Top-1 accuracy on the validation images, a fraction. {_NULL}."),
    Column("top5", "float64", f"Top-5 accuracy on the validation images, a fraction. {_NULL}."),
    Column("train_s", "float64", "Time of the epoch's training steps, warm-up included.", "s"),
    Column(
        "throughput_images_per_s", "float64", "Training images divided by `train_s`.", "images/s"
    ),
    Column("epoch_start_s", "float64", times.EPOCH_START, "s"),
    Column(
        "validated_s",
        "float64",
        "From the start to the end of its validation; null if resumed or untimed. A program has one"
        " epoch, and its last validation.",
        "s",
    ),
)
LEARNING_RATES = (
    Column("run", "str", "The run, a successful one."),
    Column(
        "epoch",
        "float64",
        "When the step began: epochs since the start of training, with a fraction.",
    ),
    Column("lr", "float64", "Learning rate of this step."),
)
VALIDATIONS = (
    Column("run", "str", "The run, a successful one of a program."),
    Column("validation", "int64", "The validation, counted from 1."),
    Column("top1", "float64", "Top-1 accuracy that the program said, a fraction."),
    Column("loss", "float64", "Loss that it said."),
    Column(
        "validated_s",
        "float64",
        "From the start of the training to when it was said; null if the program was started again,"
        " or the run is untimed.",
        "s",
    ),
)
RATES_AN_EPOCH = 20


def learns(record: Record) -> bool:
    """Tell whether accuracy means something: not for loaders of random pictures."""
    return bool(registry.member("loaders", record.spec.loader).LEARNS)


def measures(record: Record, epochs: pd.DataFrame) -> Values:
    """Return COLUMNS of a successful run, from its rows of table `epochs`."""
    spec = record.spec
    values: Values = {"final_loss": float(epochs["loss"].iloc[-1])}
    for name in ("top1", "top5"):
        last, best = epochs[name].iloc[-1], epochs[name].max()
        if name == "top1" and spec.program:  # its epoch has the last validation alone
            said = [row["top1"] for row in validations(record) if row["top1"] is not None]
            best = max(said, default=best)
        if not learns(record):
            last = best = Why(f"loader {spec.loader} has nothing to learn from")
        elif spec.epochs < spec.full_epochs:
            last = best = Why(f"{spec.epochs} of {spec.full_epochs} epochs were trained")
        values |= {f"final_{name}": last, f"best_{name}": best}
    return values


def epochs(record: Record) -> pd.DataFrame:
    """Return a successful run's rows of table `epochs`."""
    steps = record.steps
    first = steps[steps["rank"] == 0].groupby("epoch")
    # Over ranks a step's losses add up to the mean over its images.
    # A user's program need not say that of every step.
    loss = steps.groupby(["epoch", "step"])["loss"].sum(min_count=1).groupby(level="epoch").mean()
    table = pd.DataFrame({"lr": first["lr"].first(), "lr_end": first["lr"].last(), "loss": loss})
    stats = _by_epoch(record, "tracked_stats")
    top5 = {
        n: s["correct_top5"] / s["seen"]
        for n, s in stats.items()
        if s and s.get("correct_top5") is not None
    }
    learning = learns(record)
    table["top1"] = (
        pd.Series(_by_epoch(record, "eval_accuracy"), dtype="float64") if learning else np.nan
    )
    table["top5"] = pd.Series(top5, dtype="float64") if learning else np.nan
    table["train_s"] = times.wall_s(steps) if record.timed else np.nan
    images = steps.groupby("epoch")["images"].sum().astype("float64")
    table["throughput_images_per_s"] = throughput(images, table["train_s"])
    starts = _by_epoch(record, "ddlbench_epoch_start_s")
    table["epoch_start_s"] = pd.Series(starts, dtype="float64") if record.timed else np.nan
    table["validated_s"] = pd.Series(_validated(record), dtype="float64")
    table = table.reset_index()
    named = table.assign(run=record.spec.id, epoch=table["epoch"] + 1)
    return named[[column.name for column in EPOCHS]].astype(types(EPOCHS))


def _validated(record: Record) -> dict[int, float]:
    """Return when each epoch was validated, counted from 0 [s since training began]."""
    if not _is_one_stretch(record) or "run_start" not in record.last:
        return {}
    begin = record.last["run_start"].time_s
    # What learns nothing has no accuracy.
    key = "eval_accuracy" if learns(record) else "tracked_stats"
    validations = [event for event in record.events if event.key == key]
    return {event.metadata["epoch_num"] - 1: event.time_s - begin for event in validations}


def _is_one_stretch(record: Record) -> bool:
    """Tell whether times of a run are those since its start: it was timed, and never went on after
    an interruption.
    """
    resumed = "ddlbench_resumed" in record.last or len(starts_s(record.last)) > 1
    return record.timed and not resumed


def validations(record: Record) -> list[dict[str, Any]]:
    """Return a successful run's rows of table `validations`; none for our own trainings."""
    begin = record.last["run_start"].time_s
    timed = _is_one_stretch(record)
    return [
        {
            "run": record.spec.id,
            "validation": number,
            "top1": said.get("top1"),
            "loss": said.get("loss"),
            "validated_s": said["time_s"] - begin if timed else None,
        }
        for number, said in enumerate(record.value("ddlbench_evaluations") or [], start=1)
    ]


def _by_epoch(record: Record, key: str) -> dict[int, Any]:
    """Return the values of this key's events by epoch, counted from 0."""
    return {
        event.metadata["epoch_num"] - 1: event.value for event in record.events if event.key == key
    }


def learning_rates(record: Record) -> pd.DataFrame:
    """Return a successful run's rows of table `learning_rates`: some steps of each epoch, its first
    and last among them.
    """
    steps = record.steps[record.steps["rank"] == 0]
    count = len(steps) // record.spec.epochs
    kept = np.linspace(0, count - 1, min(count, RATES_AN_EPOCH)).round()
    steps = steps[(steps["step"] % count).isin(kept)]
    table = pd.DataFrame({"run": record.spec.id, "epoch": steps["step"] / count, "lr": steps["lr"]})
    return table.astype(types(LEARNING_RATES))
