"""In which order runs were made: whether sides alternate in time, and whether rates drift meanwhile."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from ddlbench.analysis.drift import drift as drift_of
from ddlbench.analysis.together import CELL, COMPARED
from ddlbench.audit import MLCOMMONS, SC15, Finding, Findings, Material, rule
from ddlbench.audit._compare import groups, ids, in_parentheses, present, timed


@rule(
    "warning",
    "runs.throughput_images_per_s runs.started_s runs.repeat",
    "look for what slows the machine with time (heat, other jobs, a full disk); mixed order keeps"
    " verdicts fair, but numbers from the two ends of the study are not one machine's",
    f"{SC15}, section 4.1; docs/statistics.md, Drift",
)
def drift(material: Material) -> Findings:
    """Check that rates do not drift beyond noise while a study is made.

    A line through the logarithms of all timed runs' rates over their start, with a level of its own
    for each cell of runs that differ in their repeat only. A machine that wanders up and down is
    not found. Under drift, intervals of one side hold the truth too rarely; the page says so.
    """
    for where, rows in groups(timed(material.runs), ["machine"]):
        cells = rows.groupby(present(rows, [*COMPARED, *CELL]), dropna=False).ngroup()
        trend = drift_of(cells.tolist(), rows["started_s"], rows["throughput_images_per_s"])
        if trend is None or not trend.beyond_noise:
            continue
        percents = [f"{100 * (value - 1):+.1f}" for value in (trend.ratio, trend.low, trend.high)]
        hours = float(np.ptp(rows["started_s"])) / 3600
        text = (
            f"from the first to the last of {trend.n} runs, {hours:.2g} h, rates changed by"
            f" {percents[0]} %"
        )
        text += f" ({percents[1]} to {percents[2]} %)"
        yield Finding(ids(rows.sort_values("started_s")), f"{text}{in_parentheses(where)}")


@rule(
    "note",
    "runs.started_s runs.throughput_images_per_s",
    "let the study's runs be made in random order",
    f"{MLCOMMONS}, Run Results; Hoefler and Belli, SC'15, section 4.1",
)
def run_order(material: Material) -> Findings:
    """Check that runs of two frameworks or loaders alternate in time, whatever others are made in
    between.

    If all of one come before all of the other, a machine that slows down decides who is faster.
    """
    for what, rows in groups(timed(material.runs), [*COMPARED, "workers"]):
        spans = rows.groupby(["framework", "loader"])["started_s"].agg(["min", "max", "size"])
        spans = spans[spans["size"] >= 3].sort_values(
            "min"
        )  # the plan never does it: all first repeats come first
        sides = [" with ".join(map(str, name)) for name in spans.index]
        ends, starts = spans["max"].tolist(), spans["min"].tolist()
        apart = [
            f"{sides[first]} before {sides[second]}"
            for first, second in combinations(range(len(sides)), 2)
            if ends[first] < starts[second]
        ]
        if apart:
            more = f", and {len(apart) - 3} more pairs" if len(apart) > 3 else ""
            order = ", ".join(apart[:3]) + more
            yield Finding(
                ids(rows),
                f"all runs of one side came before those of another{in_parentheses(what)}: {order}",
            )
