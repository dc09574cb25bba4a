"""Steps and events to a run's measures of time.

Warm-up is cut here, never in the log, by the rule of `warm_up.py`: see `cut`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ddlbench.analysis import outliers
from ddlbench.analysis.record import Record
from ddlbench.analysis.scaling import throughput
from ddlbench.analysis.warm_up import warm_up, warm_up_in_means
from ddlbench.core.columns import PROFILER, SHARING, UNKNOWN, Column, Values, Why
from ddlbench.core.mllog import Event, train_s
from ddlbench.core.step_rows import COMPUTE, STEP_PARTS

EPOCH_START = (
    "Start of an epoch: from asking the loader for the epoch to having its first batch, on rank 0."
    " The first step's data wait includes it."
)


def _column(name: str, means: str, unit: str = "s", kind: str = "float64") -> Column:
    return Column(name, kind, means, unit, spoiled_by=(SHARING, PROFILER))


COLUMNS = (
    _column(
        "throughput_images_per_s",
        "Training images divided by the wall time of their steps.",
        "images/s",
    ),
    _column(
        "epoch_s",
        "Training time of an epoch: its images divided by the throughput. A program's epochs are its"
        " own: all that was read of it counts as one epoch.",
    ),
    _column("validation_s", "Mean time of a validation after the first, or of the only one."),
    _column(
        "train_s",
        "The whole training as it was made: with validation and warm-up, without interruptions.",
    ),
    _column(
        "full_train_s",
        "Time of all epochs: `train_s + (of_epochs - epochs) * (epoch_s + validation_s)`.",
    ),
    *(
        _column(name, f"{part.means}. Mean over steps and ranks.")
        for name, part in STEP_PARTS.items()
    ),
    _column("compute_s", "`forward_s + backward_s + optimizer_s`."),
    _column(
        "communication_transfer_s",
        "Per step, transfer time is the minimum of `communication_s` over ranks; the rest is"
        " waiting. In a synchronous step every rank waits for the last one, which waits for nobody."
        " Null with one worker.",
    ),
    _column(
        "communication_wait_s",
        "`communication_s - communication_transfer_s`: waiting for slower ranks.",
    ),
    _column(
        "epoch_start_s", f"{EPOCH_START} Mean over the epochs after the first, or of the only one."
    ),
    _column(
        "warm_up_steps",
        "Steps at the beginning that are warm-up by the rule MSER-5 (docs/statistics.md), ignoring"
        " starts of epochs.",
        "steps",
        "Int64",
    ),
    _column(
        "cut_steps",
        "Steps at the beginning that no measure of time counts: the warm-up, and the rest of its"
        " epoch if whole epochs are left. An epoch's start then counts with all of its steps.",
        "steps",
        "Int64",
    ),
    _column("timed_steps", "Steps that count.", "steps", "Int64"),
    _column(
        "steady",
        "Whether step times became steady. If not, half of the run or more is warm-up, and its rate"
        " says little.",
        "",
        "boolean",
    ),
    _column(
        "step_median_s",
        "Median of the steps that count; a step takes as long as on its slowest rank.",
    ),
    _column("step_p5_s", "5 % of the steps that count were shorter."),
    _column("step_p95_s", "5 % of the steps that count were longer."),
    _column("step_max_s", "The longest step that counts."),
    _column(
        "stalls",
        "Steps that count, begin no epoch, and are far longer than the others: above the third"
        " quartile by three interquartile ranges, and above the median by 10 %. They stay in all"
        " measures.",
        "steps",
        "Int64",
    ),
)
# Columns that say how times of single steps differ.
OF_STEPS = ("step_p5_s", "step_p95_s", "step_max_s", "stalls")
MEANS_ALONE = "it prints a line every few steps: the times of single steps are not known"
FEW_LINES = "too few lines to tell"
MEDIANS = (
    Column("run", "str", "The run, a timed one."),
    *(
        Column(name, "float64", f"{part.means}. Median over steps and ranks.", "s")
        for name, part in STEP_PARTS.items()
    ),
)


@dataclass(frozen=True)
class Cut:
    """The cut at the beginning of a run: how many steps are warm-up, and how many are not counted;
    `steady`: whether the rest is, None if nobody can tell.
    """

    warm_up: int
    steps: int
    steady: bool | None


def step_s(steps: pd.DataFrame) -> pd.Series[float]:
    """Return the wall time of each step [s], by its number: a step takes as long as on its slowest
    rank.
    """
    took = steps[list(STEP_PARTS)].sum(axis=1)  # a part that was not measured is in the others
    longest: pd.Series[float] = took.groupby(steps["step"]).max().clip(lower=0.0)
    return longest


def cut(step_times: pd.Series[float], an_epoch: int, told: Sequence[int] = ()) -> Cut:
    """Return which steps do not count, for a run with these step times and so many steps in an
    epoch. `told`: of a program, how many steps in turn share one mean time; then these are cut.

    Warm-up ends where `warm_up.py` says. The first step of a later epoch waits for its
    loader, which is no warm-up, so it is not looked at. If the run has more than one epoch, the
    rest of the epoch in which warm-up ends is cut as well: in a part of an epoch its start would
    count too much or not at all. At least one epoch is left.
    """
    if max(told, default=1) > 1:
        return _cut_means(step_times, told)
    seen = [n for n in range(len(step_times)) if n == 0 or n % an_epoch or an_epoch == 1]
    looked_at = step_times.to_numpy()[seen]
    cut_steps, steady = warm_up(looked_at) if looked_at.any() else (1, False)
    ends = seen[cut_steps] if cut_steps < len(seen) else len(step_times)
    if an_epoch > 1 and ends > 1 and ends % an_epoch == 1:
        ends -= 1  # the step before it begins the epoch
    epochs = len(step_times) // an_epoch
    if epochs > 1:
        return Cut(ends, min(-(-ends // an_epoch), epochs - 1) * an_epoch, steady)
    return Cut(ends, ends, steady)


def _cut_means(step_times: pd.Series[float], told: Sequence[int]) -> Cut:
    """Return which steps do not count, of a program that prints a line every so many."""
    ends = np.minimum(np.cumsum(told), len(step_times))
    ends = np.unique(np.append(ends, len(step_times)))
    starts = np.append(0, ends[:-1])
    means = np.add.reduceat(step_times.to_numpy(), starts) / (ends - starts)
    lines, steady = warm_up_in_means(means) if means.any() else (1, False)
    steps = int(ends[lines - 1]) if lines else 0
    return Cut(steps, steps, steady)


def told_steps(record: Record) -> list[int]:
    """Return how many steps in turn share one mean time, of a program that prints a line every so
    many; empty where each step has its own.
    """
    said = record.value("ddlbench_reading", {})
    every = said.get("told_every_steps")
    in_turn = said.get("told_steps") or ([[every, record.steps["step"].nunique()]] if every else [])
    return [steps for steps, count in in_turn for _ in range(count)]


def cut_of(record: Record) -> Cut:
    """Return which steps of a run do not count."""
    times = step_s(record.steps)
    return cut(times, len(times) // record.spec.epochs, told_steps(record))


def after_warm_up(record: Record) -> pd.DataFrame:
    """Return the steps that count; none if warm-up was all there is."""
    return record.steps[record.steps["step"] >= cut_of(record).steps]


def wall_s(steps: pd.DataFrame) -> pd.Series[float]:
    """Return the wall time of each epoch's steps [s]: that of the rank which needed longest."""
    took = steps[list(STEP_PARTS)].sum(axis=1)  # a part that was not measured is in the others
    return took.groupby([steps["epoch"], steps["rank"]]).sum().groupby(level="epoch").max()


def medians(record: Record) -> dict[str, float | str | None]:
    """Return a timed run's row of table `step_times`."""
    timed = after_warm_up(record)
    names = [name for name in STEP_PARTS if name not in why_unknown(record)]
    return {
        "run": record.spec.id,
        **dict.fromkeys(STEP_PARTS),
        **{n: float(timed[n].median()) for n in names},
    }


def why_unknown(record: Record) -> dict[str, str]:
    """Return why parts of a step are unknown, by column. The time of the complete step is known."""
    reasons = record.value("ddlbench_not_measured", {})
    return {name: reasons[name] for name in STEP_PARTS if name in reasons}


def measures(record: Record) -> Values:
    """Return COLUMNS of a timed run."""
    spec, reasons = record.spec, record.value("ddlbench_not_measured", {})
    values: Values = {column.name: Why("all of its steps are warm-up") for column in COLUMNS}
    values["train_s"] = train_s(record.last)
    times = step_s(record.steps)
    an_epoch = len(times) // spec.epochs
    gone, told = cut_of(record), told_steps(record)
    values |= {
        "warm_up_steps": gone.warm_up,
        "cut_steps": gone.steps,
        "timed_steps": len(times) - gone.steps,
    }
    values["steady"] = Why(FEW_LINES) if gone.steady is None else gone.steady
    values |= _spread(times[times.index >= gone.steps], an_epoch)
    if max(told, default=1) > 1:
        values |= dict.fromkeys(OF_STEPS, Why(MEANS_ALONE))
    values |= _measures_after_warm_up(record.steps[record.steps["step"] >= gone.steps], record)
    rest = spec.full_epochs - spec.epochs
    if not rest:
        values["full_train_s"] = values["train_s"]
    elif not isinstance(values["epoch_s"], Why):
        values["full_train_s"] = values["train_s"] + rest * (
            values["epoch_s"] + values["validation_s"]
        )
    values["epoch_start_s"] = _epoch_start_s(record.events)
    split = ("communication_transfer_s", "communication_wait_s")
    if spec.workers == 1:
        values |= dict.fromkeys(split, Why("one worker has no other to wait for"))
    if pd.isna(values["communication_s"]):
        values["communication_s"] = why = Why(reasons.get("communication_s", UNKNOWN))
        if spec.workers > 1:
            values |= dict.fromkeys(split, why)
    unknown = {name: Why(reason) for name, reason in why_unknown(record).items()}
    if any(name in unknown for name in COMPUTE):
        unknown["compute_s"] = next(unknown[name] for name in COMPUTE if name in unknown)
    return values | unknown


def _spread(times: pd.Series[float], an_epoch: int) -> Values:
    """Return the spread of the times of the steps that count."""
    if times.empty:
        return {}
    low, middle, high = (float(times.quantile(share)) for share in (0.05, 0.5, 0.95))
    inner = times[(times.index % an_epoch > 0) | (an_epoch == 1)]
    stalls = outliers.stalls(inner.to_numpy()) if inner.any() else 0
    longest = float(times.max())
    return {
        "step_median_s": middle,
        "step_p5_s": low,
        "step_p95_s": high,
        "step_max_s": longest,
        "stalls": stalls,
    }


def _measures_after_warm_up(timed: pd.DataFrame, record: Record) -> Values:
    """Return the measures that count only after warm-up."""
    if timed.empty:
        return {}
    rate = throughput(float(timed["images"].sum()), float(wall_s(timed).sum()))
    means = {name: float(timed[name].mean()) for name in list(STEP_PARTS)}
    values: Values = {"throughput_images_per_s": rate, "epoch_s": record.images / rate, **means}
    values["compute_s"] = sum(means[name] for name in COMPUTE)
    values["validation_s"] = _validation_s(record.events)
    if record.spec.workers > 1:
        transfer = float(timed.groupby("step")["communication_s"].min().mean())
        values["communication_transfer_s"] = transfer
        values["communication_wait_s"] = means["communication_s"] - transfer
    return values


def _validation_s(events: Sequence[Event]) -> float | Why:
    at = {
        key: {e.metadata["epoch_num"]: e.time_s for e in events if e.key == key}
        for key in ("eval_start", "eval_stop")
    }
    took = [at["eval_stop"][n] - at["eval_start"][n] for n in sorted(at["eval_stop"])]
    return float(np.mean(took[1:] or took)) if took else Why(UNKNOWN)


def _epoch_start_s(events: Sequence[Event]) -> float | Why:
    starts = {e.metadata["epoch_num"]: e.value for e in events if e.key == "ddlbench_epoch_start_s"}
    later = [value for number, value in starts.items() if number > 1]
    return float(np.mean(later or list(starts.values()))) if starts else Why(UNKNOWN)
