"""What the clocks of an MLPerf log say: how long it trained, how fast, and when it had reached
which accuracy.

Training is timed in intervals: epochs, else blocks of epochs, else from one evaluation to the next,
whichever the log has and fills the run; evaluations within them are taken out. An interval counts
from its first rank's start to its last rank's end. Some writers log marks when work is queued:
these fill a fifth of the run, and are not believed. A rate that the whole run contradicts is none.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ddlbench.analysis.scaling import throughput
from ddlbench.core.columns import Why
from ddlbench.records import BELIEVED
from ddlbench.records._mllog import ACCURACY, MOST_EPOCHS, RATES, Log, Marks, plain

Floats = npt.NDArray[np.float64]
FILLED = 0.67  # of the time of training that intervals take at least, or they do not time it
# Benchmarks whose epoch_num is no epoch of train_samples, where it counts no samples either.
OTHER_EPOCHS = {"bert", "gpt3", "minigo", "dlrm"}


@dataclass(frozen=True)
class Times:
    """The times in a log. Rates in samples/s, times in s since `run_start`; None where the log does
    not say it.

    `intervals`: rows of start, end, time in between without evaluations, samples. `several`: more
    than one training.
    """

    train_s: float | None
    clock_rate: float | None
    said_rate: float | None
    run_rate: float | None  # samples seen by the time from `run_start` to `run_stop`
    clocks: str | None
    said_samples: float | None
    samples: float | None
    seen_samples: float | None
    back_s: float
    several: bool
    intervals: Floats
    reached: Floats  # rows of epochs, accuracy, when
    no_rate: str

    @property
    def best(self) -> float | None:
        """Return the best accuracy in the log."""
        best = self.reached[:, 1][np.isfinite(self.reached[:, 1])]
        return float(best.max()) if len(best) else None

    @property
    def jumped(self) -> bool:
        """Return whether a clock was set during the training."""
        return self.back_s > max(1.0, 0.01 * (self.train_s or 0.0))

    def values(self) -> dict[str, Any]:
        """Return the measures under the names of table `runs`. A measure that the log should
        contain, but does not, is a Why.
        """
        rate: Any = self.clock_rate or self.said_rate or Why(self.no_rate)
        if (
            self.run_rate
            and not isinstance(rate, Why)
            and not BELIEVED[0] <= rate / self.run_rate <= BELIEVED[1]
        ):
            rate = Why(
                f"{rate:.4g} samples/s by its marks, {self.run_rate:.4g} by all samples and the"
                " run's time"
            )
        train: Any = self.train_s
        if train is None or train <= 0:
            train = Why("the log has no run_start and run_stop in this order")
        elif self.jumped:
            train = Why(f"a clock went back by {self.back_s:.1f} s while it trained")
        epoch: Any = rate if self.samples else Why("the log has no train_samples")
        if not isinstance(epoch, Why):
            epoch = (self.samples or 0.0) / epoch
        values = {
            "throughput_images_per_s": rate,
            "epoch_s": epoch,
            "train_s": train,
            "full_train_s": train,
        }
        if self.seen_samples:
            values["images_seen"] = int(self.seen_samples)
        return values


def times(log: Log, benchmark: str, fixed: int | None = None) -> Times:
    """Compute the times of a log; `fixed` is the benchmark's number of samples an epoch, where the
    rules fix it.
    """
    starts, stops = (
        ms[ms > 0] for ms in (_rows(log.marks[key])[:, 0] for key in ("run_start", "run_stop"))
    )
    begin = float(starts.min()) if len(starts) else None
    end = float(stops.max()) if len(stops) else None
    several = (
        len(starts) > 0
        and len(stops) > 0
        and bool((starts > stops.min()).any() and stops.max() > starts.max())
    )
    number = plain(log.keys.get("train_samples"))
    count = number if number > 0 else None
    samples = (
        float(fixed) if fixed else count
    )  # some writers log steps, or what is left without the last, partial step
    evaluations = _pairs(log, "eval", lambda n: n)
    counted = [
        _rows(log.marks[name])[:, 1]
        for name in ("epoch_stop", "eval_start", ACCURACY, "block_start")
    ]
    largest = max((float(np.nanmax(c)) for c in counted if not np.isnan(c).all()), default=0.0)
    in_samples = largest > MOST_EPOCHS or any(marks.in_samples for marks in log.marks.values())
    clocks, spans, why = (
        None,
        np.empty((0, 3)),
        "no epochs, blocks or evaluations with their times and counts",
    )
    for name, rows in (
        ("epochs", _epochs(log)),
        ("blocks", _blocks(log)),
        ("evaluations", _between(log, begin)),
    ):
        if in_samples and name != "evaluations":
            continue
        better = len(rows) > len(spans) and (len(spans) < 2 or name == "epochs")
        if better or (clocks and len(rows) and _filled_share(spans, evaluations, end) < FILLED):
            clocks, spans = name, rows
    if clocks and not in_samples and benchmark in OTHER_EPOCHS:
        clocks, spans, why = (
            None,
            np.empty((0, 3)),
            f"epochs of {benchmark} are not passes over train_samples",
        )
    if clocks and not in_samples and samples is None:
        clocks, spans, why = None, np.empty((0, 3)), "the log has no train_samples"
    unit = 1.0 if in_samples else samples or 0.0
    epochs = np.column_stack(
        [spans[:, 0], spans[:, 1], _seconds_without(spans, evaluations, clocks), spans[:, 2] * unit]
    )
    timed = (
        epochs[1:] if len(epochs) > 2 else epochs
    )  # the first one starts up, as warm-up is cut of our own
    timed = timed[timed[:, 2] > 0]
    reached = _accuracies(log, begin)
    validated = reached[np.isfinite(reached[:, :2]).all(axis=1), 0]
    seen = float(validated.max()) * unit if len(validated) else None
    train_s = None if begin is None or end is None else (end - begin) / 1e3
    return Times(
        train_s=train_s,
        clock_rate=(
            float(throughput(timed[:, 3].sum(), timed[:, 2].sum()))
            if len(timed) and timed[:, 3].sum()
            else None
        ),
        said_rate=_median_logged_rate(log),
        run_rate=seen / train_s if seen and train_s and train_s > 0 else None,
        clocks=clocks,
        said_samples=count,
        samples=samples,
        seen_samples=seen,
        back_s=_largest_step_back(log, begin, end),
        several=several,
        intervals=epochs,
        reached=reached,
        no_rate=f"the log states no rate, and {why}",
    )


def epochs(log: Log, run: Times, benchmark: str) -> dict[str, list[Any]]:
    """Return rows of table `epochs` as columns without the run: epochs that were evaluated, with
    accuracy for `resnet`.
    """
    if (
        run.samples is None
        or run.clocks is None
        or any(marks.in_samples for marks in log.marks.values())
    ):
        return {}
    rows = {int(n): (a, s) for n, a, s in run.reached if n == int(n or 0) and n >= 1}
    spans = {}
    if run.clocks == "epochs":
        intervals = enumerate(run.intervals.tolist(), 1)
        spans = {
            number: (took_s, samples) for number, (_, _, took_s, samples) in intervals if took_s > 0
        }
    numbers = sorted({*rows, *spans})
    names = ("lr", "lr_end", "loss", "top5", "epoch_start_s")
    return {
        "epoch": numbers,
        **{name: [None] * len(numbers) for name in names},
        "top1": [
            rows[n][0] if n in rows and benchmark == "resnet" and 0 <= rows[n][0] <= 1 else None
            for n in numbers
        ],
        "train_s": [spans[n][0] if n in spans else None for n in numbers],
        "throughput_images_per_s": [
            throughput(spans[n][1], spans[n][0]) if n in spans else None for n in numbers
        ],
        "validated_s": [rows[n][1] if n in rows and not run.jumped else None for n in numbers],
    }


def _epochs(log: Log) -> Floats:
    """Return epochs as rows of start, end [s since 1970], how many: each of `epoch_start` with its
    `epoch_stop`.
    """
    return _pairs(log, "epoch", lambda number: 1.0)


def _blocks(log: Log) -> Floats:
    """Return blocks as rows of start, end [s since 1970], epochs; a block has as many epochs as it
    says, or as there are up to the next one.
    """
    rows = _rows(log.marks["block_start"])
    firsts = np.unique(rows[~np.isnan(rows[:, 1]), 1])
    counts = {n: float(c) for n, c in zip(rows[:, 1], rows[:, 2], strict=True) if c == c}
    up_to: dict[float, float] = dict(
        zip(firsts[:-1].tolist(), np.diff(firsts).tolist(), strict=True)
    )
    return _pairs(log, "block", lambda number: counts.get(number, up_to.get(number, math.nan)))


def _between(log: Log, begin: float | None) -> Floats:
    """Return the intervals from one evaluation to the next, and from the run's start to the first;
    they count how much was trained.
    """
    rows = _rows(log.marks["eval_start"])
    starts = _by_count(rows, np.minimum)
    stops = _by_count(_rows(log.marks["eval_stop"]), np.maximum)
    if not starts:  # only accuracies: their evaluations are part of the time
        starts = stops = _by_count(_rows(log.marks[ACCURACY]), np.minimum)
    spans, before, at = [], 0.0, begin
    for count, start in sorted(starts.items()):
        if at is not None and count > before:
            spans.append((at / 1e3, start / 1e3, count - before))
        before, at = count, stops.get(count, start)
    return np.array(spans).reshape(-1, 3)


def _pairs(log: Log, interval: str, amount: Callable[[float], float]) -> Floats:
    """Return the intervals of `<what>_start` and `<what>_stop` with one count: rows of start, end
    [s], `amount(count)`.

    Some writers count starts from 0 and ends from 1: then each start goes with the next number's
    end.
    """
    starts = _by_count(_rows(log.marks[f"{interval}_start"]), np.minimum)
    stops = _by_count(_rows(log.marks[f"{interval}_stop"]), np.maximum)
    both = [(start, stops[n]) for n, start in starts.items() if n in stops]
    shift = 1.0 if interval != "eval" and 0.0 in starts and 0.0 not in stops else 0.0
    if both and np.median([end - start for start, end in both]) < 0:
        shift = 1.0
    rows = [
        (start / 1e3, stops[n + shift] / 1e3, amount(n))
        for n, start in sorted(starts.items())
        if n + shift in stops
    ]
    intervals: Floats = np.array(rows).reshape(-1, 3)
    return intervals[(intervals[:, 1] > intervals[:, 0]) & ~np.isnan(intervals[:, 2])]


def _seconds_without(intervals: Floats, evaluations: Floats, clocks: str | None) -> Floats:
    """Return how long each interval is without the evaluations that begin in it [s]; an earlier one
    runs beside training.
    """
    took: Floats = intervals[:, 1] - intervals[:, 0]
    if clocks == "evaluations" or not len(evaluations):
        return took
    for start, end in _merged(evaluations):
        took -= np.where(
            intervals[:, 0] <= start,
            np.clip(np.minimum(intervals[:, 1], end) - start, 0.0, None),
            0.0,
        )
    return took


def _filled_share(intervals: Floats, evaluations: Floats, end: float | None) -> float:
    """Return the share of the training, from the first interval's start to the run's end, that
    intervals take; evaluations count for neither.
    """
    if end is None:
        return 1.0
    whole = np.array([[intervals[:, 0].min(), end / 1e3, 0.0]])
    return float(
        _seconds_without(intervals, evaluations, None).sum()
        / max(1e-9, _seconds_without(whole, evaluations, None)[0])
    )


def _merged(evaluations: Floats) -> list[list[float]]:
    """Return the times of evaluations, merging those that overlap."""
    joined: list[list[float]] = []
    for start, end, _ in sorted(evaluations.tolist()):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    return joined


def _accuracies(log: Log, begin: float | None) -> Floats:
    """Return accuracies as rows of what was trained by then, the value, when [s since `begin`]; of
    several ranks the first.
    """
    rows = _rows(log.marks[ACCURACY])
    rows = rows[~np.isnan(rows[:, 1])]
    if begin is None or not len(rows):
        return np.empty((0, 3))
    _, first = np.unique(rows[:, 1], return_index=True)
    kept = rows[np.sort(first)]
    shift = 0.0
    if 0.0 in kept[:, 1] and 0.0 in _rows(log.marks["eval_start"])[:, 1]:
        shift = 1.0  # epochs counted from 0
    return np.column_stack([kept[:, 1] + shift, kept[:, 2], (kept[:, 0] - begin) / 1e3])


def _largest_step_back(log: Log, begin: float | None, end: float | None) -> float:
    """Return how far times go back from one number to the next, at most [s].

    The order of lines does not matter.
    """
    worst = 0.0
    for name in ("epoch_start", "epoch_stop", "eval_start", "eval_stop"):
        if log.marks[name].in_samples:
            continue
        at = [ms for _, ms in sorted(_by_count(_rows(log.marks[name]), np.minimum).items())]
        if begin is not None:
            at = [begin, *at]
        if end is not None and not name.startswith("eval"):
            at = [*at, end]
        if len(at) > 1:
            worst = max(worst, float(-np.diff(at).min()))
    return max(0.0, worst / 1e3)


def _median_logged_rate(log: Log) -> float | None:
    """Return the median of the rates in the log, of the first kind of rate that it has."""
    for name in (*RATES, *(f"tracked_stats.{name}" for name in RATES)):
        rates = np.array(log.rates.get(name, ()))
        rates = rates[np.isfinite(rates) & (rates > 0)]
        if len(rates):
            return float(np.median(rates))
    return None


def _rows(marks: Marks) -> Floats:
    return np.frombuffer(marks.rows, dtype=np.float64).reshape(-1, 3)


def _by_count(rows: Floats, pick: Any) -> dict[float, float]:
    """Return times [ms] by count: the first or the last of those that several ranks wrote."""
    rows = rows[~np.isnan(rows[:, 1]) & (rows[:, 0] > 0)]
    counts, place = np.unique(rows[:, 1], return_inverse=True)
    times = np.full(len(counts), np.inf if pick is np.minimum else -np.inf)
    pick.at(times, place, rows[:, 0])
    return dict(zip(counts.tolist(), times.tolist(), strict=True))
