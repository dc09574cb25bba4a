"""What a study's axes ask besides speed: how large a batch may be, which schedule, how much memory, at what cost.

One sentence per question and model, of runs that differ in nothing but what is asked. Intervals are those of
`analysis/statistics.py` over repeats; what rests on single runs is counted and has no sentence.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from ddlbench.analysis import together
from ddlbench.analysis.statistics import Ratio, difference, over_repeats, ratio
from ddlbench.core.plural import between, count_of
from ddlbench.core.roles import AXIS, EXTENT, SETTING
from ddlbench.show.page.words import Sentence

POINT = 1.0  # points of top-1 that count as a loss
SAME = together.settings(SETTING, EXTENT, without=("model", "schedule"))
SIDES = together.settings(AXIS)
WITHOUT = "one run each: no interval, so no sentence about them here"


def batches(runs: pd.DataFrame) -> Iterator[Sentence | str]:
    """How much top-1 the largest batch costs beside the smallest, under each schedule, and from which batch on more
    than a point is surely lost."""
    for model, same in _with_most(_learned(runs), "global_batch"):
        parts: list[str] = []
        lost_from: dict[str, str] = {}
        alone = 0
        least, most = same["global_batch"].min(), same["global_batch"].max()
        for schedule, series in same.groupby("schedule"):
            sides = _sides(series, "global_batch", "top1")
            if len(sides) < 2 or not {least, most} <= sides.keys():
                continue
            change = {size: difference(sides[size], sides[least]) for size in sorted(sides) if size > least}
            if change[most].low is None:
                alone += 1
                continue
            parts.append(f"by {_ends(change[most])} points with {schedule}")
            lost = [size for size, points in change.items() if points.high is not None and points.high < -POINT]
            lost_from[str(schedule)] = f"from batch {lost[0]} on" if lost else "at no batch"
        if parts:
            where = "; ".join(f"with {schedule} {place}" for schedule, place in lost_from.items())
            if len(set(lost_from.values())) == 1:
                where = next(iter(lost_from.values()))
            words = f"{model}: from batch {least} to {most}, top-1 changes {', '.join(parts)}."
            words += f" More than a point is surely lost {where}."
            yield Sentence(words, f"95 % intervals, {_repeats(same)} runs each", tuple(same["run"]))
        if alone:
            yield f"{alone} series of {model} over batches have {WITHOUT}."


def schedules(runs: pd.DataFrame) -> Iterator[Sentence | str]:
    """Which schedule ends with the best top-1 at the smallest and at the largest batch that several were trained at."""
    for model, same in _with_most(_learned(runs), "schedule"):
        parts, alone = [], 0
        for size in dict.fromkeys([same["global_batch"].min(), same["global_batch"].max()]):
            sides = _sides(same[same["global_batch"] == size], "schedule", "top1")
            best = max(sides, key=lambda name: over_repeats(list(sides[name].values())).middle)
            apart = {name: difference(sides[best], sides[name]) for name in sides if name != best}
            if any(points.low is None for points in apart.values()):
                alone += 1
                continue
            better = {name for name, points in apart.items() if points.low and points.low > 0}
            above = [f"{_ends(points)} points above {name}" for name, points in apart.items() if name in better]
            like = [f"{name} ({_ends(points)} points)" for name, points in apart.items() if name not in better]
            verdicts = [f"is {' and '.join(above)}"] if above else []
            verdicts += [f"cannot be told from {' and '.join(like)}"] if like else []
            parts.append(f"at batch {size}, {best} {', and '.join(verdicts)}")
        if parts:
            sure = f"95 % intervals of top-1, {_repeats(same)} runs each"
            yield Sentence(f"{model}: {'; '.join(parts)}.", sure, tuple(same["run"]))
        if alone:
            yield f"Schedules of {model} have {WITHOUT}."


def memory(runs: pd.DataFrame, unit: str) -> Iterator[Sentence | str]:
    """Which framework, or else loader, takes the least memory of a worker on the most workers that all ran on."""
    taken = runs.assign(peak=runs["peak_device_memory_bytes"].fillna(runs["peak_resident_bytes"]).astype("float64"))
    taken = taken[taken["peak"].notna()]
    axis = "framework" if taken["framework"].nunique() > 1 else "loader"
    where = "GPU memory" if taken["peak_device_memory_bytes"].notna().any() else "memory"
    for model, same in _with_most(taken, axis, ("workers", "global_batch", "schedule")):
        sides = _sides(same, axis, "peak")
        least = min(sides, key=lambda name: over_repeats(list(sides[name].values())).middle)
        apart = {name: ratio(sides[name], sides[least]) for name in sides if name != least}
        peak = over_repeats(list(sides[least].values()))
        if peak.low is None or peak.high is None or any(times.low is None for times in apart.values()):
            yield f"The {where} of {model} under its {axis}s: {WITHOUT}."
            continue
        others = [f"{name} {_ends(times)} times that" for name, times in apart.items()]
        other = "loader" if axis == "framework" else "framework"
        workers = count_of(int(same["workers"].iloc[0]), unit.removesuffix("s"))
        words = (
            f"{model} with {same[other].iloc[0]} on {workers}: a worker takes the "
            f"least {where} with {least}, {between(peak.low / 1e9, peak.high / 1e9)} GB; {', '.join(others)}."
        )
        yield Sentence(words, f"95 % intervals, {peak.n} runs each", tuple(same["run"]))


def cost(runs: pd.DataFrame, unit: str, price: tuple[float, str] | None) -> Iterator[Sentence | str]:
    """The cheapest and the fastest whole training. `price` is that of a node hour, with its currency."""
    timed = runs[runs["full_train_s"].notna() & runs["timed"].astype(bool)]
    timed = timed.assign(hours=timed["nodes"] * timed["full_train_s"] / 3600)
    for (model, *_), same in timed.groupby(["model", *SAME], dropna=False):
        settings = [part for _, part in same.groupby([*SIDES, "workers", "global_batch", "schedule"], dropna=False)]
        repeated = [part for part in settings if len(part) > 1]
        if len(repeated) < 2:
            if len(settings) > 1:
                yield f"Costs of {model}: {WITHOUT}."
            continue
        cheap, fast = (min(repeated, key=lambda part: part[by].median()) for by in ("hours", "full_train_s"))
        trained, whole = (same[name].iloc[0] for name in ("epochs", "of_epochs"))
        long = ""
        if pd.notna(whole):
            long = f", {count_of(int(whole), 'epoch')}"
            long += f" (by {trained} that were trained)" if trained < whole else ""
        words = f"{model}{long}: cheapest {'and fastest ' * (cheap is fast)}is {_setting(cheap, unit)}, "
        words += _hours(cheap, price)
        if cheap is not fast:
            words += f"; fastest is {_setting(fast, unit)}, {_hours(fast, price)}"
        of_runs = tuple(dict.fromkeys([*cheap["run"], *fast["run"]]))
        yield Sentence(f"{words}.", f"95 % intervals, {min(len(cheap), len(fast))} runs each", of_runs)


def price(costs: pd.DataFrame) -> tuple[float, str] | None:
    """What a node hour costs by table `costs`, with its currency; None where the machine's file names no price."""
    sold = costs[costs["cost"].notna() & (costs["node_hours"] > 0)]
    if sold.empty:
        return None
    return float(sold["cost"].iloc[0] / sold["node_hours"].iloc[0]), str(sold["currency"].iloc[0])


def _learned(runs: pd.DataFrame) -> pd.DataFrame:
    """Keeps runs that have a top-1, and gives it in percent."""
    return runs[runs["final_top1"].notna()].assign(top1=lambda table: 100 * table["final_top1"])


def _with_most(runs: pd.DataFrame, axis: str, also: Sequence[str] = ()) -> list[tuple[str, pd.DataFrame]]:
    """Of each model the runs of one setting: that with the most values of an axis, if these are several. The model with
    the most runs comes first.

    Numbers of workers follow batches. So a batch is asked of where several were trained on as many workers, or three.
    """
    found = []
    setting = [name for name in (*SIDES, *also) if name not in together.differing_with(axis)]
    for (model, *_), same in runs.groupby(["model", *SAME], dropna=False):
        groups = [part for _, part in same.groupby(setting, dropna=False)] if setting else [same]
        if axis in ("global_batch", "schedule"):  # where a batch was trained on several numbers of workers, each alone
            groups = [part for group in groups for part in _by_workers(group)]
        if axis == "global_batch":
            groups = [part for part in groups if part["workers"].nunique() == 1 or part[axis].nunique() > 2]
        if axis == "schedule":
            groups = [part[part.groupby("global_batch")[axis].transform("nunique") > 1] for part in groups]
        groups = [part for part in groups if len(part)]
        most = max(groups, key=lambda part: (part[axis].nunique(), part["workers"].max(), len(part)), default=None)
        if most is not None and most[axis].nunique() > 1:
            found.append((str(model), most))
    return sorted(found, key=lambda model_and_runs: -len(model_and_runs[1]))


def _by_workers(runs: pd.DataFrame) -> list[pd.DataFrame]:
    mixed = runs.groupby("global_batch")["workers"].nunique().max() > 1
    return [part for _, part in runs.groupby("workers")] if mixed else [runs]


def _sides(runs: pd.DataFrame, axis: str, measure: str) -> dict[Any, dict[int, float]]:
    """A measure by repeat, for each value of an axis."""
    return {
        value: {int(n): float(result) for n, result in zip(side["repeat"], side[measure], strict=True)}
        for value, side in runs.groupby(axis)
    }


def _ends(interval: Ratio) -> str:
    return between(interval.low or 0.0, interval.high or 0.0)


def _repeats(runs: pd.DataFrame) -> int:
    return int(runs["repeat"].nunique())


def _setting(runs: pd.DataFrame, unit: str) -> str:
    first = runs.iloc[0]
    return f"{first['framework']}, {first['loader']} on {count_of(int(first['workers']), unit.removesuffix('s'))}"


def _hours(runs: pd.DataFrame, price: tuple[float, str] | None) -> str:
    """`1.2 to 1.4 node hours (12 to 14 EUR) in 0.3 to 0.35 h`."""
    taken, long = (over_repeats([float(v) for v in runs[by]]) for by in ("hours", "full_train_s"))
    assert taken.low and taken.high and long.low and long.high  # of several runs
    words = f"{between(taken.low, taken.high)} node hours"
    if price:
        words += f" ({between(price[0] * taken.low, price[0] * taken.high)} {price[1]})"
    hour = long.high >= 3600
    ends = [end / (3600 if hour else 1) for end in (long.low, long.high)]
    return f"{words} in {between(*ends)} {'h' if hour else 's'}"
