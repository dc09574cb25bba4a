"""Repeats: how many there are, and how far they lie apart."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ddlbench.analysis import together
from ddlbench.analysis.together import CELL, COMPARED
from ddlbench.audit import MLCOMMONS, SC15, TWELVE_WAYS, Finding, Findings, Material, rule
from ddlbench.audit._compare import differing, groups, ids, present, timed
from ddlbench.core.spec import id_of_repeat


@rule(
    "note",
    "numbers.repeats",
    "set repeats in the study, 3 at least",
    f"{SC15}, rules 5 and 6; {MLCOMMONS}, Benchmark Results (5 runs of ResNet)",
)
def few_repeats(material: Material) -> Findings:
    """Check that a point has at least three runs: with one nobody knows how far another would lie
    from it, and with two no difference is significant.

    How often intervals of so few hold where rates are not normal was measured
    (docs/measurements/statistics.md).
    """
    points = material.numbers[material.numbers["quantity"] == "throughput"]
    for n in (1, 2):
        few = points[points["repeats"] == n]
        if len(few):
            yield Finding(ids(few), f"n = {n} at {len(few)} of {len(points)} points")


@rule(
    "warning",
    "runs.repeat runs.workers",
    "make the missing repeats",
    f"{MLCOMMONS}, Benchmark Results; {SC15}, rule 7",
)
def uneven_repeats(material: Material) -> Findings:
    """Check that points that are compared rest on as many runs.

    The best or the mean of five beside a single run is no fair comparison. Runs that failed, and
    gaps in the numbers of repeats, have rules of their own: failed-runs, missing-repeats. Repeats
    that a study made until it was decided are not counted: the key `repeats` says which settings
    get them.
    """
    runs = timed(material.runs) if "throughput_images_per_s" in material.runs else material.runs
    if "further" in material.tables:
        runs = runs[~runs["run"].isin(material["further"]["run"])]
    made = pd.Series(0, runs.index)
    for _, rows in groups(runs, [*COMPARED, *CELL]):
        numbers = {*rows["repeat"], *_failed_repeats(material, rows)}
        made.loc[rows.index] = (
            max(numbers) + 1 - (1 if _are_numbered_from_1(rows) else min(numbers))
        )
    sides = together.differing_with("framework", "loader", "form")
    keys = [*COMPARED, *(name for name in CELL if name not in sides)]
    return differing(runs.assign(made=made), "made", keys, "numbers of repeats")


def _failed_repeats(material: Material, rows: pd.DataFrame) -> set[int]:
    """Return the numbers of this run's repeats that failed: by their log, or without a record."""
    unsuccessful = material.tables.get("unsuccessful", rows[:0])
    keys = present(rows, [*COMPARED, *CELL])
    if {*keys, "repeat"} <= {*unsuccessful}:
        unsuccessful = together.rows_like(unsuccessful, rows.iloc[0], keys)
    failures = material.tables.get("failures")
    named = {*failures["run"]} if failures is not None and "run" in failures else set()
    run, repeat = str(rows["run"].iloc[0]), int(rows["repeat"].iloc[0])
    highest = int(material.runs["repeat"].max())
    without = (n for n in range(1, highest + 1) if id_of_repeat(run, repeat, n) in named)
    return (
        {*unsuccessful["repeat"].dropna().astype(int), *without}
        if "repeat" in unsuccessful
        else {*without}
    )


def _are_numbered_from_1(rows: pd.DataFrame) -> bool:
    """Tell whether repeats are numbered from 1, as ours are; logs of others may begin anywhere."""
    return bool(together.are_ours(rows).all())


@rule(
    "warning",
    "runs.repeat",
    "make the missing repeats: start the workflow again",
    f"{MLCOMMONS}, Run Results (consecutive runs); {TWELVE_WAYS}, number 3",
)
def missing_repeats(material: Material) -> Findings:
    """Check that repeats are counted without gaps: a run that was made and is not there is a run
    that somebody left out.

    Runs that failed are named by failed-runs. Logs of others may be numbered from 0, from 1 or from
    anywhere. The last repeats leave no gap: whether a study once had six and kept the best three of
    them as its first cannot be known.
    """
    for _, rows in groups(material.runs, [*COMPARED, *CELL]):
        numbers = {int(n) for n in rows["repeat"]}
        known = numbers | _failed_repeats(material, rows)
        first = 1 if _are_numbered_from_1(rows) else min(known)
        missing = [n for n in range(first, max(known) + 1) if n not in known]
        if missing:
            made = ", ".join(map(str, sorted(numbers)))
            yield Finding(
                ids(rows), f"repeats {made} were made; missing: {', '.join(map(str, missing))}"
            )


@rule(
    "error",
    "runs.seed runs.repeat",
    "let repeats move the seed",
    f"{MLCOMMONS}, Run Results (seeds); Picard 2021, arXiv:2109.08203",
)
def same_seed(material: Material) -> Findings:
    """Check that repeats have different seeds, that those of one number have the same one, and that
    every run says its seed.

    Repeats of one seed show the machine's noise, not that of training. Sides with other seeds begin
    with other weights and see the samples in another order.
    """
    keys = [*present(material.runs, [*COMPARED, *CELL]), "seed"]
    for _, rows in groups(material.runs[material.runs.duplicated(keys, keep=False)], keys):
        repeats = ", ".join(map(str, sorted(rows["repeat"])))
        yield Finding(ids(rows), f"repeats {repeats} all have seed {rows['seed'].iloc[0]}")
    runs = material.runs[together.are_ours(material.runs)]
    yield from differing(runs, "seed", [*COMPARED, "repeat"], "seeds of one repeat")


@rule(
    "warning",
    "runs.throughput_images_per_s runs.repeat",
    "compare the hosts of the runs; show the outlier",
    "Megatron-LM's rule for slow ranks; Hoefler and Belli, SC'15, rules 5 and 8",
)
def slow_repeat(material: Material) -> Findings:
    """Name a repeat that is much slower than the others: more than 10 percent and more than a
    standard deviation below their median.

    It is to be looked at, not dropped. A fast repeat is not named. Hosts and ranks have a stricter
    limit, three robust deviations of the others (`analysis/outliers.py`); of three repeats, two
    others would give no such deviation. Slow repeats on a node where all
    were slow, and those that were slow one after the other, have one cause: they are one finding.
    """
    runs = timed(material.runs)
    rates = runs.groupby(present(runs, [*COMPARED, *CELL]), dropna=False)["throughput_images_per_s"]
    runs = runs.assign(
        median=rates.transform("median"), sd=rates.transform("std"), n=rates.transform("size")
    )
    off = runs["median"] - runs["throughput_images_per_s"]
    bad = (runs["n"] >= 3) & (off > 0.1 * runs["median"]) & (off > runs["sd"])
    for rows, cause in _causes(runs, bad):
        first = rows.iloc[0]
        text = (
            f"{first['throughput_images_per_s']:.6g} {together.sample(rows)}/s, the median of"
            f" {first['n']}"
            " repeats is "
        )
        text += f"{first['median']:.6g}"
        more = f"; {len(rows) - 1} more runs {cause}" if len(rows) > 1 else ""
        yield Finding(ids(rows), text + more)


def _causes(runs: pd.DataFrame, bad: pd.Series[bool]) -> Iterator[tuple[pd.DataFrame, str]]:
    """Yield slow runs that have one cause, and the cause."""
    slow, good = runs[bad], runs[~bad]
    if "hosts" in runs:
        hosts = slow["hosts"].str.split(",").explode()
        fine = {*good["hosts"].str.split(",").explode()}
        for host, count in hosts.value_counts().items():
            on_it = slow[[host in str(names).split(",") for names in slow["hosts"]]]
            if host not in fine and count > 1 and len(on_it) > 1:
                yield on_it, f"on {host}, where no run was faster"
                slow = slow.drop(on_it.index)
    if "started_s" in runs and runs["started_s"].notna().all():
        in_time = runs.sort_values("started_s")
        stretch = (~in_time.index.isin(slow.index)).cumsum()
        for _, rows in slow.groupby(pd.Series(stretch, in_time.index).reindex(slow.index)):
            yield rows, "right before or after it were slow, too, without a normal run in between"
    else:
        for place in range(len(slow)):
            yield slow.iloc[place : place + 1], ""


@rule(
    "error",
    "runs.throughput_images_per_s runs.train_s",
    "find out which run was copied, move its folder away and start the workflow",
    "seen in published tables",
)
def copied_runs(material: Material) -> Findings:
    """Check that no two runs have the same times to the last digit.

    Two trainings never take equally long; equal times are one run under two names.
    """
    runs, times = timed(material.runs), ["throughput_images_per_s", "train_s"]
    for values, rows in runs[runs.duplicated(times, keep=False)].groupby(times):
        yield Finding(
            ids(rows),
            f"{len(rows)} runs with {values[0]:.6f} {together.sample(rows)}/s and {values[1]:.6f} s"
            " of training",
        )
