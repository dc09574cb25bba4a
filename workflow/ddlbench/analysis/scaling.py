"""How training scales: throughput, speed-up and efficiency, each formula once.

Source: Aach et al. 2023, J Big Data 10:96, doi:10.1186/s40537-023-00765-w, section "Efficiency".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import pandas as pd

from ddlbench.analysis.intervals import Interval, over_repeats
from ddlbench.analysis.significance import ratio
from ddlbench.analysis.together import BATCH, KEYS, SERIES, are_ours, by_repeat, of_programs, timed
from ddlbench.core.roles import STRONG, WEAK

Number = TypeVar("Number", float, "pd.Series[float]")


def throughput(images: Number, seconds: Number) -> Number:
    """Compute DT [images/s]: images of timed steps over all ranks, by the wall time of these steps
    [s].
    """
    return images / seconds


def speed_up(t_ref: Number, t_g: Number) -> Number:
    """Compute S_G = T_ref / T_G: the time that the baseline needs, by the time that G workers need
    for as many images.
    """
    return t_ref / t_g


def efficiency(s_g: Number, ref: Number, g: Number) -> Number:
    """Compute E_G = S_G * ref / G: speed-up by ideal speed-up, where the baseline has `ref`
    workers.

    The paper prints E_G = S_G / G. With its baseline of 4 GPUs that would make the baseline's own
    efficiency 0.25; its figures show 1 there, which is this form.
    """
    return s_g * ref / g


# The column with the time that speed-up and efficiency compare [s], by the basis that a study
# names.
TIMES = {"steps": "epoch_s", "run": "full_train_s"}


MEASURES = (
    "throughput_images_per_s",
    "speed_up",
    "efficiency",
)  # of `scaling`; each with `_low` and `_high`


def scaling(runs: pd.DataFrame, basis: str = "steps") -> pd.DataFrame:
    """Return series of runs over worker counts, one row per series and worker count; `runs` is the
    table of `collect`.

    Only successful timed runs count, and none that was killed on purpose. Runs of one series are
    alike in all but workers, repeat and batch: they have the same batch per worker (weak scaling,
    `global_batch` is null), or the same global batch (strong scaling, `batch_per_worker` is null),
    as `in_series` says. In records of others both are null: submitters change the batch along a
    series. A series' baseline is its smallest worker count.

    Each measure is a median over `repeats` runs; `_low` and `_high` are its 95 % confidence
    interval (`intervals.py`), null for one run. Throughput is in images/s. Speed-up compares times
    (`compared_s`): of the training steps of an epoch (`basis` steps), or of the whole training with
    everything in it (`basis` run, as in the paper). It is a ratio of `pairs`, repeat by repeat, and 1
    for the baseline. `spread_low` and `spread_high` are how much below and above its median rate 5
    % of a single run's steps are, as factors; null with several runs.
    """
    counted = counted_runs(runs, basis)
    grouped = counted.assign(compared_s=compared_s(counted, basis)).groupby(
        list(SERIES), dropna=False
    )
    rows = [row for _, series in grouped for row in _series(series)]
    names = [*SERIES, "workers", "repeats", "pairs", "ref_workers", "spread_low", "spread_high"]
    names += [f"{measure}{end}" for measure in MEASURES for end in ("", "_low", "_high")]
    return pd.DataFrame(rows, columns=names).astype(dict.fromkeys(BATCH, "Int64"))


def counted_runs(runs: pd.DataFrame, basis: str = "steps") -> pd.DataFrame:
    """Return the runs that `scaling` counts, in series (`in_series`); `together.rows_like` finds
    those of one of its rows.
    """
    runs = timed(runs)
    return in_series(runs[runs[TIMES[basis]].notna()])


def compared_s(runs: pd.DataFrame, basis: str) -> pd.Series[float]:
    """Return the time that speed-up compares [s]: a column of TIMES; for a program, which ends when
    it likes, per sample.
    """
    times, programs = runs[TIMES[basis]].astype("float64"), of_programs(runs)
    return (
        times.mask(programs, times / runs["images"].astype("float64")) if programs.any() else times
    )


def loader_names(runs: pd.DataFrame) -> pd.Series[str]:
    """Return each run's loader name for comparisons: with its form, where it reads several in these
    runs. A program has no loader, and goes by its own name.
    """
    several = runs.groupby("loader")["form"].transform("nunique") > 1
    named = runs["loader"].where(
        ~several, runs["loader"].astype(str) + " (" + runs["form"].astype(str) + ")"
    )
    return named.mask(of_programs(runs), runs["model"])


def in_series(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with `batch_per_worker` and `global_batch` as `scaling` says: SERIES then
    identifies their series.

    Column `scaling` says which of the two the study keeps. A run of which it is null is in each
    series that it fits: in two, and so twice in the table, where a weak and a strong one meet. If
    none fits, fewer series are chosen.
    """
    batch = pd.DataFrame(
        {
            "batch_per_worker": (runs["global_batch"] // runs["workers"]).astype("Int64"),
            "global_batch": runs["global_batch"].astype("Int64"),
        }
    )
    keys = [runs[key] for key in KEYS]
    sizes = batch.groupby(keys, dropna=False).transform("nunique")
    fewer = sizes["batch_per_worker"] <= sizes["global_batch"]
    kinds = runs["scaling"] if "scaling" in runs else pd.Series(None, runs.index, "object")

    def fits(kind: str, size: str) -> pd.Series[bool]:
        """Return which runs are of a series of this kind, or may be: runs without a kind that share
        its batch.
        """
        in_a_series_of_the_kind: pd.Series[bool] = (
            (kinds == kind).groupby([*keys, batch[size]], dropna=False).transform("any")
        )
        return (kinds == kind) | (kinds.isna() & in_a_series_of_the_kind)

    strong = fits(STRONG, "global_batch")
    weak = fits(WEAK, "batch_per_worker") | (kinds.isna() & ~strong & fewer)
    batch = batch.where(are_ours(runs))
    once = runs.assign(
        batch_per_worker=batch["batch_per_worker"].where(weak),
        global_batch=batch["global_batch"].mask(weak),
    )
    both = weak & strong
    if not both.any():
        return once
    share, whole = batch["batch_per_worker"].mask(both)[both], batch["global_batch"][both]
    return pd.concat([once, once[both].assign(batch_per_worker=share, global_batch=whole)])


def _series(series: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the rows of one series, by worker count."""
    counts = [(int(str(workers)), runs) for workers, runs in series.groupby("workers")]
    ref, base = counts[0]
    base_s = by_repeat(base, "compared_s")
    for workers, runs in counts:
        row = {key: runs[key].iloc[0] for key in SERIES} | {"workers": workers, "ref_workers": ref}
        row |= {"repeats": len(runs), **_spread(runs)}
        row |= _named(
            "throughput_images_per_s", over_repeats(runs["throughput_images_per_s"].tolist())
        )
        pairs = Interval(1.0, None, None, len(runs))  # the base, compared with itself
        if workers != ref:
            pairs = ratio(base_s, by_repeat(runs, "compared_s"))
        row |= {"pairs": pairs.n, **_named("speed_up", pairs)}
        yield row | _named("efficiency", pairs, efficiency(1.0, ref, workers))


def interval_of(row: Mapping[Any, Any], measure: str) -> Interval:
    """Return a measure of a row of `scaling`: the median over its repeats, with the confidence
    interval if there is one.
    """
    ends = (row[f"{measure}_low"], row[f"{measure}_high"])
    low, high = (None if pd.isna(end) else float(end) for end in ends)
    return Interval(float(row[measure]), low, high, int(row["repeats"]))


def _named(measure: str, interval: Interval, factor: float = 1.0) -> dict[str, float | None]:
    ends = {"": interval.middle, "_low": interval.low, "_high": interval.high}
    return {
        f"{measure}{end}": None if value is None else value * factor for end, value in ends.items()
    }


def _spread(runs: pd.DataFrame) -> dict[str, float | None]:
    spread = {"spread_low": "step_p95_s", "spread_high": "step_p5_s"}
    if len(runs) > 1 or "step_median_s" not in runs:
        return dict.fromkeys(spread)
    middle, run = runs["step_median_s"].iloc[0], runs.iloc[0]
    return {name: middle / run[column] if run[column] else None for name, column in spread.items()}
