"""What a record must satisfy to be believed. Each check raises RefusedError, which names the file and what is wrong.

A record can be wrong because files were copied, mixed up, cut off or damaged, or because a clock was set meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis.refusals import RefusedError
from ddlbench.files import sha256
from ddlbench.rank.measure import COLUMNS as MEASURED
from ddlbench.record import STEP_COLUMNS, Event
from ddlbench.spec import RunSpec, steps_per_epoch

# Parts of a step [s]; communication is null where the framework cannot measure it.
SECONDS = ("data_wait_s", "forward_s", "backward_s", "communication_s", "optimizer_s", "end_s")
NULLABLE = {"communication_s"}
ROUNDING_S = 1e-6  # times are differences of floating point numbers: nothing may come out a little below zero
# Events of training; none of them may follow the end of the run.
TRAINING = {"run_start", "epoch_start", "epoch_stop", "eval_start", "eval_accuracy", "tracked_stats", "eval_stop"}


def check_digest(path: Path, said: str) -> None:
    """The file is the one that the log was written with."""
    if not path.exists():
        raise RefusedError(path, "is missing, and the log says its SHA-256")
    made = sha256(path)
    if made != said:
        raise RefusedError(path, f"has SHA-256 {made[:12]}..., the log says {str(said)[:12]}...: the file was changed")


def check_log(path: Path, events: Sequence[Event], spec: RunSpec) -> None:
    """Events are in an order that training can have, and their values are possible."""
    last = {event.key: event for event in events}
    for key, expected in (("global_batch_size", spec.global_batch), ("seed", spec.seed)):
        if key in last and last[key].value != expected:
            raise RefusedError(path, f"{key} is {last[key].value}, and {expected} in ddlbench_spec")
    images = last["train_samples"].value if "train_samples" in last else None
    if not isinstance(images, int) or images < 1:
        raise RefusedError(path, f"train_samples is {images}; allowed: a whole number above 0")
    specs = {repr(event.value) for event in events if event.key == "ddlbench_spec"}
    if len(specs) > 1:
        raise RefusedError(path, "names more than one run in ddlbench_spec: logs of several runs are mixed")
    _check_order(path, events)
    _check_values(path, events)
    if "run_stop" in last and last["run_stop"].metadata.get("status") == "success":
        _check_epochs(path, events, spec)


def _check_order(path: Path, events: Sequence[Event]) -> None:
    ended: str | None = None
    started = False
    for event in events:
        if event.key == "run_stop":
            status = str(event.metadata.get("status"))
            if ended is not None:
                raise RefusedError(path, f"ends twice: run_stop {ended}, and later run_stop {status}")
            if status == "success" and not started:
                raise RefusedError(path, "has a run_stop without a run_start before it")
            ended = status
        elif event.key in TRAINING and ended is not None:
            raise RefusedError(path, f"goes on after its end: {event.key} after run_stop {ended}")
        elif event.key == "run_start":
            if started:
                raise RefusedError(path, "starts twice: it has two run_start")
            started = True


def _check_epochs(path: Path, events: Sequence[Event], spec: RunSpec) -> None:
    """A successful run has validated each of its epochs, once and in their order, and time went forward."""
    expected = list(range(1, spec.epochs + 1))
    for key in ("eval_start", "eval_accuracy", "eval_stop"):
        numbers = [event.metadata.get("epoch_num") for event in events if event.key == key]
        if numbers != expected:
            raise RefusedError(path, f"has {key} of epochs {_few(numbers)}; expected: each of 1 to {spec.epochs} once")
    at = {(event.key, event.metadata.get("epoch_num")): event.time_s for event in events}
    pairs: list[tuple[tuple[str, Any], tuple[str, Any]]] = [(("run_start", None), ("run_stop", None))]
    pairs += [(("eval_start", number), ("eval_stop", number)) for number in expected]
    for start, stop in pairs:
        if not at.get(start, math.nan) <= at.get(stop, math.nan):
            where = f" of epoch {start[1]}" if start[1] else ""
            raise RefusedError(path, f"{stop[0]}{where} is earlier than its {start[0]}: the clock was set back")


def _check_values(path: Path, events: Sequence[Event]) -> None:
    for event in events:
        where = f"{event.key} of epoch {event.metadata['epoch_num']}" if "epoch_num" in event.metadata else event.key
        if not _is_time(event.time_s):
            raise RefusedError(path, f"{where} has time {event.time_s}; allowed: milliseconds since 1970")
        if event.key == "eval_accuracy":
            _fraction(path, where, event.value)
        elif event.key == "tracked_stats":
            _check_stats(path, where, event.value)
        elif event.key in ("ddlbench_elapsed_s", "ddlbench_epoch_start_s") and not _is_time(event.value):
            raise RefusedError(path, f"{where} is {event.value}; allowed: finite seconds, at least 0")
        elif event.key in ("ddlbench_skipped_steps", "ddlbench_flops_per_image"):
            if event.value is not None and not (_is_time(event.value) and event.value == int(event.value)):
                raise RefusedError(path, f"{where} is {event.value}; allowed: whole numbers, at least 0")
        elif event.key == "ddlbench_ranks":
            _check_ranks(path, event.value)


def _check_stats(path: Path, where: str, stats: dict[str, Any]) -> None:
    seen = stats.get("seen")
    for name in ("correct", "correct_top5"):
        if seen and stats.get(name) is not None:
            _fraction(path, f"{where}: {name} / seen", stats[name] / seen)
    if stats.get("loss") is not None and not math.isfinite(stats["loss"]):
        raise RefusedError(path, f"{where}: loss is {stats['loss']}; allowed: finite numbers")


def _check_ranks(path: Path, ranks: Sequence[dict[str, Any]]) -> None:
    for number, rank in enumerate(ranks):
        for name in (column.in_record for column in MEASURED):
            value = rank.get(name)
            if value is not None and not _is_time(value):
                raise RefusedError(path, f"ddlbench_ranks: rank {number} has {name} {value}; allowed: at least 0")


def _fraction(path: Path, where: str, value: Any) -> None:
    if not (_is_time(value) and value <= 1):
        raise RefusedError(path, f"{where} is {value}; allowed: 0 to 1")


def _is_time(value: Any) -> bool:
    """Whether it is a finite number, at least 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def check_steps(path: Path, steps: pd.DataFrame, spec: RunSpec, images: int) -> None:
    """The steps are all steps of this run: each rank's, each once, with its share of the images and possible times."""
    missing = [name for name in STEP_COLUMNS if name not in steps]
    if missing:
        raise RefusedError(path, f"has no column {', '.join(missing)}")
    ranks, epochs = sorted(steps["rank"].unique()), sorted(steps["epoch"].unique())
    if ranks != list(range(spec.workers)):
        raise RefusedError(path, f"has steps of {len(ranks)} ranks, the run had {spec.workers} workers")
    if epochs != list(range(spec.epochs)):
        raise RefusedError(path, f"has steps of {len(epochs)} epochs, the run had {spec.epochs}")
    for epoch, seen in steps.groupby("epoch")["images"].sum().items():
        if seen != images:
            raise RefusedError(path, f"epoch {epoch} has {seen} images over all ranks, train_samples is {images}")
    if steps.duplicated(["step", "rank"]).any():
        raise RefusedError(path, "has a step of a rank twice")
    an_epoch = steps_per_epoch(images, spec.global_batch)
    if len(steps) != an_epoch * spec.epochs * spec.workers or (steps["epoch"] != steps["step"] // an_epoch).any():
        each = f"{an_epoch} an epoch on each of {spec.workers} ranks"
        raise RefusedError(path, f"has {len(steps)} steps in {spec.epochs} epochs; expected: {each}")
    sizes = steps.groupby("step")["images"].sum()
    whole = (images - (sizes.index.to_series() % an_epoch) * spec.global_batch).clip(upper=spec.global_batch)
    if (steps["images"] < 0).any() or (sizes != whole).any():
        raise RefusedError(path, f"has steps of another batch than {spec.global_batch} images over all ranks")
    for name in SECONDS:
        column = steps[name].dropna() if name in NULLABLE else steps[name]
        _check_column(path, column, name, "finite seconds, at least 0")
    _check_column(path, steps["lr"], "lr", "finite numbers, at least 0")
    if not steps["loss"].map(math.isfinite).all():
        raise RefusedError(path, "has a loss that is no finite number")


def check_kernels(path: Path, kernels: pd.DataFrame) -> None:
    """Kernel times are possible."""
    _check_column(path, kernels["self_s"], "self_s", "finite seconds, at least 0")


def _check_column(path: Path, values: pd.Series[Any], name: str, allowed: str) -> None:
    bad = ~((values >= -ROUNDING_S) & (values < math.inf))  # NaN is neither
    if bad.any():
        raise RefusedError(path, f"{name} is {values[bad].iloc[0]} in {int(bad.sum())} rows; allowed: {allowed}")


def _few(numbers: Sequence[Any]) -> str:
    said = ", ".join(map(str, numbers[:8]))
    return (said or "none") + (", ..." if len(numbers) > 8 else "")
