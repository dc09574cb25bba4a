"""Repeats: how many there are, how far they lie apart, and in which order they were made."""

import numpy as np

from ddlbench.analysis import statistics
from ddlbench.analysis.together import CELL, COMPARED
from ddlbench.audit import MLCOMMONS, SC15, TWELVE_WAYS, Finding, Findings, Material, rule
from ddlbench.audit._compare import differing, each, groups, ids, in_, present, timed


@rule(
    "note",
    "numbers.repeats",
    "set repeats in the study, 3 at least",
    f"{SC15}, rules 5 and 6; {MLCOMMONS}, Benchmark Results (5 runs of ResNet)",
)
def few_repeats(material: Material) -> Findings:
    """A point has three runs at least: of one nobody knows how far another would lie from it, and two give no verdict.

    How often intervals of so few hold where rates are not normal was measured (docs/measurements/statistics.md).
    """
    points = material.numbers[material.numbers["quantity"] == "throughput"]
    for n in (1, 2):
        few = points[points["repeats"] == n]
        if len(few):
            yield Finding(ids(few), f"n = {n} at {len(few)} of {len(points)} points")


@rule(
    "warning",
    "numbers.repeats numbers.workers",
    "make the missing repeats",
    f"{MLCOMMONS}, Benchmark Results; {SC15}, rule 7",
)
def uneven_repeats(material: Material) -> Findings:
    """Points that are compared rest on as many runs.

    The best or the mean of five beside a single run is no fair comparison.
    """
    points = material.numbers[material.numbers["quantity"] == "throughput"]
    return differing(points, "repeats", [*COMPARED, "epochs", "batch_per_worker", "workers"], "numbers of repeats")


@rule(
    "warning",
    "runs.repeat",
    "make the missing repeats: start the workflow again",
    f"{MLCOMMONS}, Run Results (consecutive runs); {TWELVE_WAYS}, number 3",
)
def missing_repeats(material: Material) -> Findings:
    """Repeats are counted without gaps: a run that was made and is not there is a run that somebody left out.

    Runs that failed are in table `failures`, and are named there. The last repeats leave no gap: whether a study once
    had six and kept the best three of them as its first cannot be known.
    """
    runs = material.runs
    for _, rows in groups(runs, [*COMPARED, *CELL]):
        if rows["repeat"].max() > rows["repeat"].nunique():
            there = ", ".join(map(str, sorted(rows["repeat"])))
            yield Finding(ids(rows), f"repeats {there} of {rows['repeat'].max()} are there")


@rule(
    "error",
    "runs.seed runs.repeat",
    "let repeats move the seed",
    f"{MLCOMMONS}, Run Results (seeds); Picard 2021, arXiv:2109.08203",
)
def same_seed(material: Material) -> Findings:
    """Repeats have different seeds, and every run says its seed.

    Repeats of one seed show the machine's noise, not that of training.
    """
    keys = [*present(material.runs, [*COMPARED, *CELL]), "seed"]
    for _, rows in groups(material.runs[material.runs.duplicated(keys, keep=False)], keys):
        repeats = ", ".join(map(str, sorted(rows["repeat"])))
        yield Finding(ids(rows), f"repeats {repeats} all have seed {rows['seed'].iloc[0]}")


@rule(
    "warning",
    "runs.throughput_images_per_s runs.repeat",
    "compare the hosts of the runs; show the outlier",
    "Megatron-LM's rule for slow ranks; Hoefler and Belli, SC'15, rules 5 and 8",
)
def slow_repeat(material: Material) -> Findings:
    """A repeat that is much slower than the others is looked at, not dropped: more than 10 percent and more than a
    standard deviation below their median. A fast one did nothing wrong."""
    runs = timed(material.runs)
    rates = runs.groupby(present(runs, [*COMPARED, *CELL]), dropna=False)["throughput_images_per_s"]
    runs = runs.assign(median=rates.transform("median"), sd=rates.transform("std"), n=rates.transform("size"))
    off = runs["median"] - runs["throughput_images_per_s"]
    bad = (runs["n"] >= 3) & (off > 0.1 * runs["median"]) & (off > runs["sd"])
    return each(runs, bad, "{throughput_images_per_s} images/s, the median of {n} repeats is {median}")


@rule(
    "error",
    "runs.throughput_images_per_s runs.train_s",
    "find out which run was copied, move its folder away and start the workflow",
    "seen in published tables",
)
def copied_runs(material: Material) -> Findings:
    """No two runs have the same times to the last digit.

    Two trainings never take equally long; equal times are one run under two names.
    """
    runs, times = timed(material.runs), ["throughput_images_per_s", "train_s"]
    for values, rows in runs[runs.duplicated(times, keep=False)].groupby(times):
        yield Finding(ids(rows), f"{len(rows)} runs with {values[0]:.6f} images/s and {values[1]:.6f} s of training")


@rule(
    "warning",
    "runs.throughput_images_per_s runs.started_s runs.repeat",
    "look for what slows the machine with time (heat, other jobs, a full disk); mixed order keeps verdicts fair, but "
    "numbers from the two ends of the study are not one machine's",
    f"{SC15}, section 4.1; docs/statistics.md, Drift",
)
def drift(material: Material) -> Findings:
    """Rates do not move with time beyond noise while a study is made.

    A line through the logarithms of all timed runs' rates over their start, with a level of its own for each cell of
    runs that differ in their repeat only. A machine that wanders up and down is not found. Under drift, intervals of
    one side hold the truth too rarely; the page says so.
    """
    for where, rows in groups(timed(material.runs), ["machine"]):
        cells = rows.groupby(present(rows, [*COMPARED, *CELL]), dropna=False).ngroup()
        trend = statistics.drift(cells.tolist(), rows["started_s"], rows["throughput_images_per_s"])
        if trend is None or not trend.beyond_noise:
            continue
        percents = [f"{100 * (value - 1):+.1f}" for value in (trend.ratio, trend.low, trend.high)]
        hours = float(np.ptp(rows["started_s"])) / 3600
        text = f"from the first to the last of {trend.n} runs, {hours:.2g} h, rates moved by {percents[0]} %"
        text += f" ({percents[1]} to {percents[2]} %)"
        yield Finding(ids(rows.sort_values("started_s")), f"{text}{in_(where)}")


@rule(
    "note",
    "runs.started_s runs.throughput_images_per_s",
    "let the study's runs be made in random order",
    f"{MLCOMMONS}, Run Results; Hoefler and Belli, SC'15, section 4.1",
)
def run_order(material: Material) -> Findings:
    """Runs of two frameworks or loaders alternate in time.

    If all of one come before all of the other, a machine that slows down decides who is faster.
    """
    for what, rows in groups(timed(material.runs), [*COMPARED, "workers"]):
        spans = rows.groupby(["framework", "loader"])["started_s"].agg(["min", "max", "size"])
        spans = spans[spans["size"] >= 3].sort_values("min")  # the plan never does it: all first repeats come first
        if len(spans) > 1 and (spans["max"].to_numpy()[:-1] < spans["min"].to_numpy()[1:]).all():
            order = [" with ".join(map(str, name)) for name in spans.index]
            yield Finding(ids(rows), f"all runs of one came before those of the next{in_(what)}: {', '.join(order)}")


@rule(
    "error",
    "runs.started_s runs.train_s runs.hosts",
    "give timed runs whole nodes; train both again",
    f"{SC15}, rule 9; design of this workflow",
)
def overlapping_runs(material: Material) -> Findings:
    """Two timed runs never share a computer at one time.

    Each would measure the other.
    """
    slack_s = 0.5
    runs = timed(material.runs)
    runs = runs.assign(host=runs["hosts"].str.split(","), ended=runs["started_s"] + runs["train_s"])
    runs = runs[["run", "host", "started_s", "ended"]].explode("host")
    runs = runs[runs["host"] != ""].sort_values(["host", "started_s"], kind="stable")
    before = runs.groupby("host")["ended"].cummax().groupby(runs["host"]).shift()
    for place in (runs["started_s"] < before - slack_s).to_numpy().nonzero()[0]:
        row, earlier = runs.iloc[place], runs.iloc[:place]
        other = earlier[(earlier["host"] == row["host"]) & (earlier["ended"] > row["started_s"] + slack_s)].iloc[-1]
        both = min(row["ended"], other["ended"]) - row["started_s"]
        yield Finding((str(row["run"]), str(other["run"])), f"both trained on {row['host']} for {both:.1f} s")
