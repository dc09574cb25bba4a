"""Is this record sound? What ours, and the summaries of all kinds of records, may say to be
believed. Whether the times of one of ours fit each other is asked in `_fitting.py`.

Each check raises RefusedError, which names the file and what is wrong. A record can be wrong
because files were copied, mixed up, cut off or damaged, or because a clock was set meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.analysis.recorded import OF_RANKS
from ddlbench.analysis.refusals import RefusedError
from ddlbench.analysis.summary import LISTS, Summary
from ddlbench.analysis.summary import columns as columns_of
from ddlbench.core import kinds, registry
from ddlbench.core.files import sha256
from ddlbench.core.mllog import Event, ended_well
from ddlbench.core.recipe import Recipe
from ddlbench.core.spec import RunSpec, steps_per_epoch
from ddlbench.core.step_rows import NULLABLE, STEP_COLUMNS, STEP_PARTS

LARGEST = 2**63  # whole numbers in tables have 64 bits
# times are differences of floating point numbers: nothing may come out a little below zero
ROUNDING_S = 1e-6
MOST_TEXT = (
    100_000  # characters, of a command with all its words; csv of Python takes 131 072 in a cell
)
MOST_STEPS = 20_000_000  # of a program, over all ranks: what a gigabyte of memory holds

# Parts of a step [s]; communication is null where the framework cannot measure it.
SECONDS = (*STEP_PARTS, "end_s")
# Events of training; none of them may follow the end of the run.
TRAINING = {
    "run_start",
    "epoch_start",
    "epoch_stop",
    "eval_start",
    "eval_accuracy",
    "tracked_stats",
    "eval_stop",
}


# What kind of value an event has; each may also have none.
KINDS: dict[str, type | tuple[type, ...]] = {
    "ddlbench_facts": dict,
    "ddlbench_ranks": list,
    "ddlbench_evaluations": list,
    "ddlbench_not_measured": dict,
    "ddlbench_initial_weights_sha256": str,
    "ddlbench_checkpoint": int,
    "ddlbench_seal": dict,
    "tracked_stats": dict,
}
# Events whose value is a time [s].
TIMES = ("clock_resolution", "data_before_clock", "elapsed", "epoch_start")
SECONDS_SAID = {f"ddlbench_{name}_s" for name in TIMES}
OF_EPOCHS = {"eval_start", "eval_accuracy", "eval_stop", "tracked_stats", "ddlbench_epoch_start_s"}


def is_amount(value: Any) -> bool:
    """Return whether the value is a finite number, at least 0: a time, a count, an amount."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LARGEST


def is_time(seconds: Any) -> Any:
    """Tell whether it is a finite time, as a difference of two times may come out [s]; of a column,
    row by row.
    """
    return (seconds >= -ROUNDING_S) & (seconds < math.inf)


def is_fraction(value: Any) -> bool:
    """Return whether the value is a number from 0 to 1."""
    return is_amount(value) and value <= 1


def check_digest(path: Path, seal: str | None) -> None:
    """Check that the file is the one that the record was sealed with. Without a digest, check that
    the file does not exist.
    """
    if seal is None and path.exists():
        raise RefusedError(path, "does not belong to this record: its log does not name it")
    if seal is None:
        return
    if not path.exists():
        raise RefusedError(path, "is missing, and the log says its SHA-256")
    found = sha256(path)
    if found != seal:
        raise RefusedError(
            path,
            f"has SHA-256 {found[:12]}..., the log says {str(seal)[:12]}...: the file was changed",
        )


def check_log(path: Path, events: Sequence[Event], spec: RunSpec) -> None:
    """Check that events are in an order that training can have, and that their values are
    possible.
    """
    _check_settings(path, spec)
    _check_settings(path, spec.recipe)
    last = {event.key: event for event in events}
    for key, expected in (("global_batch_size", spec.global_batch), ("seed", spec.seed)):
        if key in last and last[key].value != expected:
            raise RefusedError(path, f"{key} is {last[key].value}, and {expected} in ddlbench_spec")
    images = last["train_samples"].value if "train_samples" in last else None
    if not isinstance(images, int) or not 1 <= images < LARGEST:
        raise RefusedError(path, f"train_samples is {images}; allowed: a whole number above 0")
    validated = last["eval_samples"].value if "eval_samples" in last else None
    if validated is not None and (type(validated) is not int or not 0 <= validated < LARGEST):
        raise RefusedError(
            path, f"eval_samples is {validated}; allowed: a whole number, at least 0"
        )
    specs = {repr(event.value) for event in events if event.key == "ddlbench_spec"}
    if len(specs) > 1:
        raise RefusedError(
            path, "names more than one run in ddlbench_spec: logs of several runs are mixed"
        )
    _check_kinds(path, events, spec)
    _check_order(path, events)
    _check_values(path, events)
    if ended_well(last):
        _check_epochs(path, events, spec)


def _check_settings(path: Path, settings: RunSpec | Recipe) -> None:
    """Check that each setting of the run has the type that its field declares. The digest in the
    run's id does not prove this for all of them.
    """
    for field in fields(settings):
        value, kind = getattr(settings, field.name), str(field.type)
        fits = value is None and kind.endswith("| None")
        if kind.startswith("str"):
            fits |= isinstance(value, str)
        elif kind.startswith("bool"):
            fits |= isinstance(value, bool)
        elif kind.startswith(("int", "float")):
            numbers = int if kind.startswith("int") else int | float
            fits |= (
                isinstance(value, numbers)
                and not isinstance(value, bool)
                and -LARGEST < value < LARGEST
            )
        else:
            fits |= not isinstance(value, str | bool | int | float | None)
        if not fits:
            raise RefusedError(path, f"ddlbench_spec: {field.name} is {value!r}; allowed: {kind}")


def _check_kinds(path: Path, events: Sequence[Event], spec: RunSpec) -> None:
    for event in events:
        if not isinstance(event.metadata, dict):
            raise RefusedError(
                path, f"{event.key} has metadata {event.metadata!r}; allowed: a mapping"
            )
        fits = event.value is None or isinstance(event.value, KINDS.get(event.key, object))
        if not fits:
            raise RefusedError(
                path,
                f"{event.key} has value {event.value!r}, which has the wrong type",
            )
        number = event.metadata.get("epoch_num")
        if event.key in OF_EPOCHS and (type(number) is not int or not 1 <= number <= spec.epochs):
            raise RefusedError(
                path, f"{event.key} has epoch_num {number!r}; allowed: 1 to {spec.epochs}"
            )
        if event.key in ("ddlbench_facts", "ddlbench_not_measured"):
            _check_words(path, event.key, event.value or {})
        if event.key == "ddlbench_evaluations":
            _check_evaluations(path, event.value or [])
        ranks: list[Any] = list(event.value or ()) if event.key == "ddlbench_ranks" else []
        for number, rank in enumerate(ranks):
            if not isinstance(rank, dict):
                raise RefusedError(
                    path, f"ddlbench_ranks: rank {number} is {rank!r}; allowed: a mapping"
                )
            _check_words(path, f"ddlbench_ranks: rank {number}", {"host": rank.get("host")})
            _check_words(path, f"ddlbench_ranks: rank {number}", rank.get("not_measured") or {})


def _check_evaluations(path: Path, evaluations: list[Any]) -> None:
    """Check that each validation of a program has a time, and finite numbers or nothing."""
    for number, said in enumerate(evaluations, start=1):
        numbers = [said.get("top1"), said.get("loss")] if isinstance(said, dict) else []
        fits = [
            one is None or (type(one) in (int, float) and abs(one) < LARGEST) for one in numbers
        ]
        if not (numbers and all(fits) and is_amount(said.get("time_s"))):
            raise RefusedError(path, f"ddlbench_evaluations: validation {number} is {said!r}")


def _check_words(path: Path, where: str, words: Any) -> None:
    """Check that the facts are a mapping of names to texts, as far as tables read them."""
    if not isinstance(words, dict) or not isinstance(words.get("versions", {}), dict):
        raise RefusedError(path, f"{where}: {words!r} has the wrong type")
    numbers = ("cores", "data_cached_share", "preflight", "uncommitted_changes", "versions")
    texts = {name: text for name, text in words.items() if name not in numbers} | words.get(
        "versions", {}
    )
    for name, text in texts.items():
        if isinstance(text, str) and len(text) > MOST_TEXT:
            raise RefusedError(
                path, f"{where}: {name} has {len(text)} characters; allowed: {MOST_TEXT}"
            )
        if text is not None and not isinstance(text, str):
            raise RefusedError(path, f"{where}: {name} is {text!r}; allowed: text")
    if not isinstance(words.get("uncommitted_changes"), bool | None):
        raise RefusedError(path, f"{where}: uncommitted_changes is neither true nor false")
    if words.get("data_cached_share") is not None:
        _fraction(path, f"{where}: data_cached_share", words["data_cached_share"])


def _check_order(path: Path, events: Sequence[Event]) -> None:
    ended: str | None = None
    started = False
    for event in events:
        if event.key == "run_stop":
            status = str(event.metadata.get("status"))
            if ended is not None:
                raise RefusedError(
                    path, f"ends twice: run_stop {ended}, and later run_stop {status}"
                )
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
    """Check that a successful run has validated each of its epochs, once and in their order, and
    that time went forward.
    """
    expected = (
        list(range(1, spec.epochs + 1)) if kinds.uses_built_in_loop(spec) else []
    )  # a program validates at any time
    for key in ("epoch_start", "epoch_stop", "eval_start", "eval_accuracy", "eval_stop"):
        numbers = [event.metadata.get("epoch_num") for event in events if event.key == key]
        # What learns nothing has no accuracy; records of before have one all the same.
        is_free = (
            key == "eval_accuracy"
            and not registry.member("loaders", spec.loader).LEARNS
            and not numbers
        )
        if expected and numbers != expected and not is_free:
            raise RefusedError(
                path,
                f"has {key} of epochs {_few(numbers)}; expected: each of 1 to {spec.epochs} once",
            )
    at = {(event.key, event.metadata.get("epoch_num")): event.time_s for event in events}
    pairs: list[tuple[tuple[str, Any], tuple[str, Any]]] = [
        (("run_start", None), ("run_stop", None))
    ]
    pairs += [(("eval_start", number), ("eval_stop", number)) for number in expected]
    for start, stop in pairs:
        if not at.get(start, math.nan) <= at.get(stop, math.nan):
            where = f" of epoch {start[1]}" if start[1] else ""
            raise RefusedError(
                path, f"{stop[0]}{where} is earlier than its {start[0]}: the clock was set back"
            )


def _check_values(path: Path, events: Sequence[Event]) -> None:
    for event in events:
        where = (
            f"{event.key} of epoch {event.metadata['epoch_num']}"
            if "epoch_num" in event.metadata
            else event.key
        )
        if not is_amount(event.time_s):
            raise RefusedError(
                path, f"{where} has time {event.time_s}; allowed: milliseconds since 1970"
            )
        if event.key == "eval_accuracy":
            _fraction(path, where, event.value)
        elif event.key == "tracked_stats":
            _check_stats(path, where, event.value)
        elif event.key in SECONDS_SAID and not is_amount(event.value):
            raise RefusedError(
                path, f"{where} is {event.value}; allowed: finite seconds, at least 0"
            )
        elif event.key in ("ddlbench_skipped_steps", "ddlbench_flops_per_image"):
            if event.value is not None and not (
                is_amount(event.value) and event.value == int(event.value)
            ):
                raise RefusedError(
                    path, f"{where} is {event.value}; allowed: whole numbers, at least 0"
                )
        elif event.key == "ddlbench_ranks":
            _check_ranks(path, event.value)


def _check_stats(path: Path, where: str, stats: dict[str, Any] | None) -> None:
    stats = stats or {}
    seen, loss = stats.get("seen"), stats.get("loss")
    for name in ("correct", "correct_top5"):
        if stats.get(name) is not None:
            if not (is_amount(stats[name]) and is_amount(seen) and seen):
                raise RefusedError(
                    path,
                    f"{where}: {name} is {stats[name]!r}, seen is {seen!r}; allowed: whole numbers, with seen above 0",
                )
            _fraction(path, f"{where}: {name} / seen", stats[name] / seen)
    top1, top5 = stats.get("correct"), stats.get("correct_top5")
    if top1 is not None and top5 is not None and top1 > top5:
        raise RefusedError(path, f"{where}: correct is {top1}, more than correct_top5, {top5}")
    if loss is not None and not (isinstance(loss, int | float) and math.isfinite(loss)):
        raise RefusedError(path, f"{where}: loss is {loss!r}; allowed: finite numbers")


def _check_ranks(path: Path, ranks: Sequence[dict[str, Any]]) -> None:
    for number, rank in enumerate(ranks):
        for name in (column.in_record for column in OF_RANKS):
            value = rank.get(name)
            if value is not None and not is_amount(value):
                raise RefusedError(
                    path, f"ddlbench_ranks: rank {number} has {name} {value}; allowed: at least 0"
                )


def _fraction(path: Path, where: str, value: Any) -> None:
    if not is_fraction(value):
        raise RefusedError(path, f"{where} is {value}; allowed: 0 to 1")


def check_steps(path: Path, steps: pd.DataFrame, spec: RunSpec, images: int) -> None:
    """Check that the steps are all steps of this run: each rank's, each once, with its share of the
    images and possible times.
    """
    missing = [name for name in STEP_COLUMNS if name not in steps]
    if missing:
        raise RefusedError(path, f"has no column {', '.join(missing)}")
    ranks, epochs = sorted(steps["rank"].unique()), sorted(steps["epoch"].unique())
    if ranks != list(range(spec.workers)):
        raise RefusedError(
            path, f"has steps of {len(ranks)} ranks, the run had {spec.workers} workers"
        )
    if epochs != list(range(spec.epochs)):
        raise RefusedError(path, f"has steps of {len(epochs)} epochs, the run had {spec.epochs}")
    for epoch, seen in steps.groupby("epoch")["images"].sum().items():
        if seen != images:
            raise RefusedError(
                path, f"epoch {epoch} has {seen} images over all ranks, train_samples is {images}"
            )
    if steps.duplicated(["step", "rank"]).any():
        raise RefusedError(path, "has a step of a rank more than once")
    ours, an_epoch = kinds.uses_built_in_loop(spec), steps_in_epoch(steps, spec, images)
    if (
        len(steps) != an_epoch * spec.epochs * spec.workers
        or (steps["epoch"] != steps["step"] // an_epoch).any()
    ):
        each = f"{an_epoch} an epoch on each of {spec.workers} ranks"
        raise RefusedError(
            path, f"has {len(steps)} steps in {spec.epochs} epochs; expected: {each}"
        )
    sizes = steps.groupby("step")["images"].sum()
    full_size = (images - (sizes.index.to_series() % an_epoch) * spec.global_batch).clip(
        upper=spec.global_batch
    )
    # A program may count something else than its batch: tokens of sequences.
    if (steps["images"] < 0).any() or (ours and (sizes != full_size).any()):
        raise RefusedError(
            path, f"has steps whose global batch is not {spec.global_batch} images over all ranks"
        )
    for name in SECONDS:
        column = steps[name].dropna() if name in NULLABLE else steps[name]
        check_column(path, column, name, "finite seconds, at least 0")
    rates, losses = (steps[name] if ours else steps[name].dropna() for name in ("lr", "loss"))
    check_column(path, rates, "lr", "finite numbers, at least 0")
    if not losses.map(math.isfinite).all():
        raise RefusedError(path, "has a loss that is not a finite number")


def most_steps(spec: RunSpec, images: int) -> int:
    """Return the maximum number of rows in the steps of a run.

    The number of steps of a program is not known in advance.
    """
    if not kinds.uses_built_in_loop(spec):
        return MOST_STEPS
    return steps_per_epoch(images, spec.global_batch) * spec.epochs * spec.workers


def steps_in_epoch(steps: pd.DataFrame, spec: RunSpec, images: int) -> int:
    """Count the steps of an epoch; a program has one epoch, of any number."""
    return (
        steps_per_epoch(images, spec.global_batch)
        if kinds.uses_built_in_loop(spec)
        else int(steps["step"].nunique())
    )


def check_column(path: Path, values: pd.Series[Any], name: str, allowed: str) -> None:
    """Check that all values are possible times or rates."""
    bad = ~is_time(values)
    if bad.any():
        raise RefusedError(
            path, f"{name} is {values[bad].iloc[0]} in {int(bad.sum())} rows; allowed: {allowed}"
        )


def check_summary(path: Path, summary: Summary, todo: str | None = None) -> None:
    """Check that tables can hold the values of a summary. The run's settings are not looked at."""
    for table, columns in columns_of().items():
        by_name = {column.name: column for column in columns}
        of_run = summary.get(table) or {}
        if table in LISTS and of_run:
            if of_run.keys() | {"run"} != by_name.keys() or len({*map(len, of_run.values())}) > 1:
                what = f"{table}: its columns differ in length, or are not {', '.join(by_name)}"
                raise RefusedError(path, what, todo)
            misfits = {name: by_name[name].misfits(values) for name, values in of_run.items()}
        else:
            rows = of_run if isinstance(of_run, list) else [of_run]
            misfits = {
                name: [value]
                for row in rows
                for name, value in row.items()
                if name in by_name and not by_name[name].holds(value)
            }
        for name, values in misfits.items():
            if values:
                raise RefusedError(path, f"{table}: {name} cannot be {values[0]!r}", todo)


def _few(numbers: Sequence[Any]) -> str:
    text = ", ".join(map(str, numbers[:8]))
    return (text or "none") + (", ..." if len(numbers) > 8 else "")
