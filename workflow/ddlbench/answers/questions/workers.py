"""How many workers are worth it: those that serve the study's goal best, with the framework and
loader taken.

    balanced   least time x hours of workers (or price): speed-up squared over workers; one per cent
               less time is worth
               one per cent more money (Eager, Zahorjan and Lazowska 1989, IEEE Trans Comput 38:408)
    fastest    least time
    cheapest   least hours of workers, or price
    target     least time to the accuracy that a figure of the study names

Times are those of the training steps of an epoch, as in table `runs`; of records of others, and for
the goal `target`, the times to the target where they are known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from ddlbench.analysis import over_settings, together
from ddlbench.analysis.comparisons import varying_settings
from ddlbench.analysis.losses import PARTS
from ddlbench.analysis.over_settings import Block
from ddlbench.analysis.scaling import compared_s, counted_runs, in_series, loader_names
from ddlbench.analysis.together import SERIES, by_repeat
from ddlbench.answers import (
    LOSS,
    Also,
    Answer,
    Candidate,
    Certainty,
    Choice,
    Dot,
    Fact,
    Given,
    Goal,
    Note,
    Over,
    Row,
    Settles,
    certainty_of,
    ratio_of,
)
from ddlbench.answers.questions import _series
from ddlbench.core.registry import OWN

PLACE = 40
DECIDES = ("workers",)
MOST_PARTS = 3  # of what a step lost
READ = (
    "run",
    "repeat",
    "workers",
    "compared_s",
    "run_s",
    "nodes",
    "global_batch",
    "recipe",
    "records",
    "data_wait_s",
)
SHARE = 0.05  # growth of a step; smaller growth is not reported


@dataclass(frozen=True)
class Series:
    """A series of runs that differ only in their workers and repeat: logarithms of speed and of the
    goal's score. `missed` are numbers of workers of which some runs did not reach the target: how
    many did, and of how many.
    """

    where: Candidate
    speed: Block
    score: Block
    runs: pd.DataFrame
    ids: Mapping[int, Mapping[int | str, str]]
    once_s: Mapping[int, float]
    nodes: Mapping[int, int]
    missed: Mapping[int, tuple[int, int]]

    @property
    def counts(self) -> list[int]:
        """Return its numbers of workers."""
        return sorted(self.speed.cells)


def answer(given: Given, choice: Choice) -> Answer | None:
    """Return how many workers to take, or None where no series has several numbers of them."""
    target, all_series = given.cached("series over workers", lambda: _all_series(given))
    if not all_series:
        return None
    series = max(all_series, key=lambda one: _weight(one, choice))
    same = (
        [one for one in all_series if _same_side(one, series) and series.counts == one.counts]
        if given.ours
        else [series]
    )
    scores, speeds = [one.score for one in same], [one.speed for one in same]
    counts = series.counts
    comparisons = given.counted_comparisons(len(counts) - 1)
    best = max(counts, key=lambda n: (_score(scores, n, counts[0]), -n))
    named = {n: Candidate(workers=n) for n in counts}
    pooled_ratios = {
        n: ratio_of(over_settings.compare(scores, best, n, comparisons), named[best], named[n])
        for n in counts
        if n != best
    }
    good = [
        n
        for n, over in pooled_ratios.items()
        if over.verdict < 1 and (over.low is None or over.low <= 1)
    ]
    keeps = _keeps_accuracy(given, series, counts, best)
    taken = keeps.values["kept"] if keeps and keeps.values["kept"] is not None else best
    rival = (
        counts[0]
        if best != counts[0]
        else max(pooled_ratios, key=lambda n: -pooled_ratios[n].middle)
    )
    whole_nodes = _is_priced(given) and given.goal in (Goal.BALANCED, Goal.CHEAPEST)
    by_speed = given.goal is Goal.TARGET and target is None
    goal = Goal.FASTEST if by_speed else given.goal
    facts = [
        Fact("score", {"over": pooled_ratios[rival], "goal": goal, "whole_nodes": whole_nodes})
    ]
    if by_speed:
        facts.append(Fact("target unreached"))
    shown = best if best != counts[0] else counts[-1]
    speed = ratio_of(
        over_settings.compare(speeds, shown, counts[0], comparisons), named[shown], named[counts[0]]
    )
    facts.append(Fact("speed", {"over": speed, "ideal": shown / counts[0], "where": series.where}))
    if keeps:
        facts.append(keeps)
    if target is None and not given.ours:
        facts.append(Fact("throughput only"))
    missed = _missed(same)
    if missed:
        facts.append(Fact("missed", {"rows": missed}))
    facts += _losses(given, series, counts[0], shown)
    certainty = _certainty(pooled_ratios, series)
    # The times of those that reached the target say nothing of the others.
    survivors = any(n == best for n, _, _ in missed)
    if (by_speed or survivors) and certainty in (Certainty.SURE, Certainty.TIE):
        certainty = Certainty.AHEAD
    return Answer(
        question="workers",
        rule=goal,
        certainty=certainty,
        taken=Candidate(workers=taken),
        among=tuple(named.values()),
        as_good=tuple(named[n] for n in good if pooled_ratios[n].low is not None),
        over=pooled_ratios[rival],
        measure="speed-up" if target is None else "sooner",
        unit="" if target is None else f"{target:g}",
        rows=tuple(_rows(given, same, counts, taken, comparisons)),
        settles=_settles(given, same, best, good, comparisons),
        why=tuple(facts),
        also=tuple(_also(given, all_series, series)),
        runs=tuple(dict.fromkeys(str(run) for one in same for run in one.runs["run"])),
        open=_undecided_runs(
            same, best, [n for n in good if certainty_of(pooled_ratios[n]) is not Certainty.TIE]
        ),
    )


def _all_series(given: Given) -> tuple[float | None, list[Series]]:
    """Return the accuracy that is the target and all series in which several numbers of workers
    reached it; without such a series, None and all series with several numbers of workers.
    """
    targets = given.tables.get("reached", pd.DataFrame())
    if len(targets) and (given.goal is Goal.TARGET or not given.ours):
        target = float(targets["target"].min())
        found = _with_several(given, _to_target(given, targets[targets["target"] == target]))
        if found:
            return target, found
    table = counted_runs(given.with_real_data)
    return None, _with_several(given, table.assign(compared_s=compared_s(table, "steps")))


def _with_several(given: Given, table: pd.DataFrame) -> list[Series]:
    """Return the series of these runs in which several numbers of workers have a time to
    compare.
    """
    number = table.groupby(list(SERIES), dropna=False).ngroup()
    compared = table["workers"].where(table["compared_s"].notna())
    several = compared.groupby(number).transform("nunique") > 1
    if not several.any():
        return []
    varying = [
        name
        for name in varying_settings(table[several])
        if name not in ("model", "schedule", "machine")
    ]
    columns = dict.fromkeys(name for name in (*READ, *SERIES, *varying) if name in table)
    narrow = table.loc[several, list(columns)]
    groups = [part for _, part in narrow.groupby(number[several])]
    return [_make_series(given, part, varying) for part in groups]


def _to_target(given: Given, targets: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with an accuracy, in series, compared by the time [s] until they reached the
    target; null where they did not. Of others' logs only those that did.

    One without a rate may be among them.
    """
    times_s = {
        run: time_s
        for row in targets.to_dict("records")
        for run, time_s in zip(json.loads(row["runs"]), json.loads(row["each"]), strict=True)
    }
    table = in_series(given.runs)
    table = table.assign(named=loader_names, compared_s=table["run"].map(times_s).astype("float64"))
    tried = table["final_top1"].notna() if given.ours else False
    return table[table["compared_s"].notna() | tried]


def _make_series(given: Given, runs: pd.DataFrame, varying: Sequence[str]) -> Series:
    tried = runs.groupby("workers")["compared_s"].agg(["count", "size"])
    runs = runs[runs["compared_s"].notna()]
    first = runs.iloc[0]
    speed: dict[Any, dict[Any, float]] = {}
    score: dict[Any, dict[Any, float]] = {}
    ids, once_s, nodes = {}, {}, {}
    for workers, of_workers in runs.groupby("workers"):
        n = int(str(workers))
        times_s = by_repeat(of_workers, "compared_s")
        speed[n] = {repeat: -math.log(value) for repeat, value in times_s.items()}
        nodes[n] = _series.nodes(given, of_workers)
        once_s[n] = float(of_workers["run_s"].median())
        ids[n] = dict(zip(times_s, of_workers["run"].astype(str), strict=True))
        score[n] = {repeat: _goal(given, value, n, nodes[n]) for repeat, value in speed[n].items()}
    where = Candidate(
        framework=None if pd.isna(first["loader"]) else str(first["framework"]),
        loader=None if pd.isna(first["loader"]) or first["loader"] == OWN else str(first["loader"]),
        model=str(first["model"]),
        schedule=None if first["schedule"] == OWN else str(first["schedule"]),
        machine=str(first["machine"]) if pd.isna(first["loader"]) else None,
        more=tuple((name, first[name]) for name in varying if not pd.isna(first[name])),
    )
    place = tuple(str(first[name]) for name in SERIES)
    missed = {
        int(str(n)): (int(reached), int(of))
        for n, reached, of in tried.itertuples()
        if reached < of
    }
    return Series(where, Block(place, speed), Block(place, score), runs, ids, once_s, nodes, missed)


def _missed(same: Sequence[Series]) -> tuple[tuple[int, int, int], ...]:
    """Return numbers of workers of which some runs did not reach the target: the number, how many
    did, and of how many.
    """
    numbers = sorted({n for one in same for n in one.missed})
    rows = []
    for n in numbers:
        each = [one.missed.get(n, (len(one.ids.get(n, ())),) * 2) for one in same]
        rows.append((n, sum(reached for reached, _ in each), sum(of for _, of in each)))
    return tuple(rows)


def _goal(given: Given, speed: float, workers: int, nodes: int) -> float:
    """Return the logarithm of what the goal maximises, for a run of this speed (a logarithm)."""
    if given.goal in (Goal.FASTEST, Goal.TARGET):
        return speed
    paid = given.tariff.workers_blocked(workers, nodes) if _is_priced(given) else workers
    return (speed if given.goal is Goal.CHEAPEST else 2 * speed) - math.log(paid)


def _is_priced(given: Given) -> bool:
    """Return whether only workers of full nodes count, because full nodes are paid for."""
    return given.tariff.price_per_worker_hour is not None


def _undecided_runs(same: Sequence[Series], best: int, rivals: Sequence[int]) -> tuple[str, ...]:
    """Return the runs of the number of workers taken and of those that may be better yet."""
    return tuple(
        run for one in same for n in (best, *rivals) if rivals for run in one.ids[n].values()
    )


def _weight(series: Series, choice: Choice) -> tuple[Any, ...]:
    """Return the key by which series are ranked: the first screen shows the largest. It counts the
    sides that other answers take, repeats at the most workers, worker counts, the most workers,
    runs.
    """
    sides = ((series.where.framework, choice.framework), (series.where.loader, choice.loader))
    fits = sum(has == wanted for has, wanted in sides if wanted is not None)
    counts = series.counts
    return fits, min(len(series.ids[counts[-1]]), 2), len(counts), counts[-1], len(series.runs)


def _same_side(one: Series, other: Series) -> bool:
    """Return whether two series share framework, loader and model."""
    left, right = one.where, other.where
    return (left.framework, left.loader, left.model) == (right.framework, right.loader, right.model)


def _score(blocks: Sequence[Block], n: int, base: int) -> float:
    return 0.0 if n == base else over_settings.compare(blocks, n, base).middle


def _certainty(pooled_ratios: Mapping[int, Over], series: Series) -> Certainty:
    """Return the certainty that this number of workers serves the goal best."""
    found = {certainty_of(over) for over in pooled_ratios.values()}
    order = (Certainty.AHEAD, Certainty.FEW, Certainty.TIE, Certainty.SURE)
    return next(one for one in order if one in found)


def _keeps_accuracy(given: Given, series: Series, counts: Sequence[int], best: int) -> Fact | None:
    """Return what the larger batch of more workers costs in top-1, of the same model and schedule;
    and the most workers that cost no more than a point, significantly or as far as is measured, if
    fewer. None where the batch stays.
    """
    each = series.runs["batch_per_worker"].iloc[0]
    if pd.isna(each) or best == counts[0]:
        return None
    batches = {n: int(each) * n for n in counts if n <= best}
    learned, first = given.with_top1, series.runs.iloc[0]
    same = together.rows_like(learned, first, ("dataset", "model", "recipe", "schedule"))
    for keys in (("framework", "options"), ("loader",)):  # another one may learn otherwise
        own = together.rows_like(same, first, keys)
        same = own if own["global_batch"].isin(batches.values()).any() else same
    top1 = {
        n: by_repeat(part.drop_duplicates("repeat"), "top1")
        for n, batch in batches.items()
        if len(part := same[same["global_batch"] == batch])
    }
    values: dict[str, Any] = {"workers": best, "base": counts[0], "batches": batches, "kept": None}
    if not {counts[0], best} <= {*top1}:
        return Fact("batch grows", values | {"top1": None})
    middles = {n: median(reached.values()) for n, reached in top1.items()}
    lost = {n for n in top1 if n != counts[0] and _loses(given, top1, n, counts[0])}
    if best in lost:
        values["kept"] = max(n for n in top1 if n < min(lost))
    return Fact("batch grows", values | {"top1": middles})


def _loses(given: Given, top1: Mapping[int, Mapping[Any, float]], n: int, base: int) -> bool:
    """Return whether n workers' batch costs significantly more than a point."""
    points = _series.difference_in_points(top1, n, base, given.counted_comparisons(len(top1) - 1))
    return points.verdict < 0 and points.high is not None and points.high < -LOSS


def _losses(given: Given, series: Series, base: int, most: int) -> list[Fact]:
    """Return what a step of `most` workers takes longer than one of `base`, by parts of table
    `losses` [s].
    """
    table = given.tables.get("losses", pd.DataFrame())
    each = series.runs["batch_per_worker"].iloc[0]
    if not len(table) or "run" not in table or pd.isna(each) or most == base:
        return []  # with the same batch in sum a step of more workers has less to do
    sides = [_seconds_of_a_step(table, series, n) for n in (base, most)]
    if None in sides:
        return []
    before, after = (side for side in sides if side is not None)
    grew = {name: after[name] - before[name] for name in before if name != "total_s"}
    own = bool((series.runs["loader"] == OWN).all())
    if own and ("data_wait_s" not in series.runs or series.runs["data_wait_s"].isna().all()):
        grew["unsplit_s"] = grew.pop("together_s")  # only the time of whole steps was read
    total = after["total_s"] - before["total_s"]
    worst = sorted(grew.items(), key=lambda one: -one[1])
    parts = [(name, value) for name, value in worst if value > SHARE * abs(total)]
    if total <= 0 or not parts:
        return []
    return [Fact("step grew", {"workers": most, "base": base, "total_s": total, "parts": tuple(parts[:MOST_PARTS]),
                               "step_s": before["total_s"], "own": own})]  # fmt: skip


def _seconds_of_a_step(table: pd.DataFrame, series: Series, n: int) -> dict[str, float] | None:
    """Return the seconds of one step by parts, over all repeats; parts that frameworks cannot
    separate are `together_s`.
    """
    runs = series.runs[series.runs["workers"] == n]
    rows = table[table["run"].isin(runs["run"])].merge(runs[["run", "global_batch"]], on="run")
    batch = int(series.runs["batch_per_worker"].iloc[0]) * n
    if rows.empty:
        return None
    steps = float(rows["images"].sum()) / batch
    own = [
        name
        for name in PARTS
        if name in ("input_s", "waiting_s", "transfer_s", "compute_s", "together_s")
    ]
    seconds = {name: float(rows[name].astype("float64").fillna(0.0).sum()) / steps for name in own}
    return seconds | {"total_s": sum(seconds.values())}


def _rows(
    given: Given, same: Sequence[Series], counts: Sequence[int], taken: int, comparisons: float
) -> Iterator[Row]:
    """Yield how many times as fast as the fewest each number of workers is; a dot is a pair, or a
    series.
    """
    blocks, base = [one.speed for one in same], counts[0]
    yield Row(Candidate(workers=base), 1.0, taken=taken == base, n=0, note=Note.BASE, ideal=1.0)
    for n in counts[1:]:
        seen = ratio_of(
            over_settings.compare(blocks, n, base, comparisons),
            Candidate(workers=n),
            Candidate(workers=base),
        )
        dots = []
        for one in same:
            pairs = one.speed.pairs(n, base)
            common = sorted({*one.ids[n]} & {*one.ids[base]})
            ids: list[tuple[str, ...]] = [
                (one.ids[n][repeat], one.ids[base][repeat]) for repeat in common
            ]
            if len(same) > 1 or len(ids) != len(pairs):
                every = (*one.ids[n].values(), *one.ids[base].values())
                pairs, ids = [median(pairs)], [every]
            dots += [
                Dot(math.exp(p), of, not given.warned.isdisjoint(of))
                for p, of in zip(pairs, ids, strict=True)
            ]
        yield Row(
            Candidate(workers=n), seen.middle, seen.low, seen.high, seen.n, seen.settings, tuple(dots),
            taken=n == taken, ideal=n / base,
        )  # fmt: skip


def _settles(
    given: Given, same: Sequence[Series], best: int, good: Sequence[int], comparisons: float
) -> Settles | None:
    """Return the cheapest runs that would separate the number of workers taken from one that is as
    good so far.
    """
    offers = []
    for n in good:
        seen = over_settings.compare([one.score for one in same], best, n, comparisons)
        over = ratio_of(seen, Candidate(workers=best), Candidate(workers=n))
        more = over_settings.more_pairs(seen, comparisons)
        if more is None or certainty_of(over) is Certainty.TIE:
            continue
        runs_s = more * sum(one.once_s[best] + one.once_s[n] for one in same)
        workers_s = more * sum(one.once_s[best] * best + one.once_s[n] * n for one in same)
        prices = [
            given.tariff.price(
                more * one.once_s[k] / 3600, given.tariff.workers_blocked(k, one.nodes[k])
            )
            for one in same
            for k in (best, n)
        ]
        price = (
            None if None in prices else math.fsum(value for value in prices if value is not None)
        )
        both = (over.candidate, over.against)
        offers.append(
            Settles(
                both, more, 2 * more * len(same), runs_s, workers_s, price, given.tariff.currency
            )
        )
    return min(offers, key=lambda offer: offer.workers_s, default=None)


def _also(given: Given, found: Sequence[Series], series: Series) -> Iterator[Also]:
    """Yield the numbers of workers that the goal takes in the other series."""
    for one in found:
        if one is series:
            continue
        counts = one.counts
        best = max(counts, key=lambda n: (_score([one.score], n, counts[0]), -n))
        shown: Hashable = best if best != counts[0] else counts[-1]
        seen = over_settings.compare([one.speed], shown, counts[0])
        over = ratio_of(seen, Candidate(workers=int(str(shown))), Candidate(workers=counts[0]))
        yield Also(
            one.where,
            Candidate(workers=best),
            over.against,
            over.middle,
            over.low,
            over.high,
            over.n,
            over.verdict,
            over.candidate,
        )
