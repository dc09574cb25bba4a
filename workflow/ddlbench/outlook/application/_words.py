"""What runs say of scaling, frameworks and loaders, in sentences: claims first, then what they cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from ddlbench.analysis.comparisons import settings, telling
from ddlbench.analysis.statistics import CANNOT_TELL
from ddlbench.core.plural import rounded

# What a series says of its scaling; the kinds that claim nothing, with what is said of all series of a kind.
CLAIMED, UNSURE, ONE_RUN, ONE_COUNT = "claimed", "unsure", "one run", "one count"
KINDS = {
    UNSURE: "The runs cannot tell whether these train faster on more {workers}",
    ONE_RUN: "Measured once each, so that nothing is claimed",
    ONE_COUNT: "Measured on one number of {workers} only, so that nothing is said of their scaling",
}


def claim(last: Mapping[str, Any] | pd.Series[Any], base: int, workers: str) -> tuple[str, str]:
    """What a series' largest point says, and which of KINDS it is; of one run, or where the interval holds no gain,
    nothing is claimed."""
    low, high, where = last["speed_up_low"], last["speed_up_high"], f"from {base} to {last['workers']} {workers}"
    if last["workers"] == base:
        return ONE_COUNT, counts([base], workers)
    if not interval(low, high):
        reached = f"speed-up {short(last['speed_up'])}, efficiency {short(last['efficiency'])}"
        return ONE_RUN, f"{where}, {reached}"
    sure = f"95 % interval {interval(low, high)}, n = {last['repeats']}"
    if low <= 1 <= high:
        return UNSURE, f"{where}, speed-up {short(last['speed_up'])} ({sure})"
    return CLAIMED, (
        f"{where} the training steps of an epoch took a time shorter by a factor of {short(last['speed_up'])} "
        f"({sure}), "
        f"an efficiency of {short(last['efficiency'])} "
        f"({interval(last['efficiency_low'], last['efficiency_high'])})"
    )


def verdicts(comparisons: pd.DataFrame, to: Callable[[Iterable[str]], str], workers: str) -> str:
    """What the runs say of frameworks and loaders, and what they cannot tell, each pair once."""
    said: list[str] = []
    unsure: dict[tuple[str, str], tuple[list[int], list[str]]] = {}
    differ = ["model", *(name for name in telling(comparisons) if name != "model")]
    for row in comparisons.to_dict("records"):
        named = settings(row, differ)
        of = f"with {', '.join(named)}" + f" and {row['with']}" * (row["with"] not in named)
        refers = to(str(row["runs"]).split())
        if row["verdict"] == CANNOT_TELL:
            on, runs = unsure.setdefault((f"{row['left']} or {row['right']}", of), ([], []))
            on.append(row["workers"])
            runs += refers.split()
        else:
            bounds = interval(row["low"], row["high"])
            said.append(
                f"{row['left']} was {row['verdict']} than {row['right']} on {counts([row['workers']], workers)} {of}: "
                f"{short(row['ratio'])} times its throughput (95 % interval {bounds}, n = {row['n']}) {refers}."
            )
    pairs = [
        f"{pair} on {counts(on, workers)} {of} {' '.join(dict.fromkeys(runs))}"
        for (pair, of), (on, runs) in unsure.items()
    ]
    return " ".join([*said, *([f"The runs cannot tell which is faster: {'; '.join(pairs)}."] if pairs else [])])


def counts(numbers: Sequence[int], what: str) -> str:
    """1 worker; 2 workers; 1 and 2 workers; 1, 2 and 4 workers."""
    listed = " and ".join(filter(None, (", ".join(map(str, numbers[:-1])), str(numbers[-1]))))
    return f"{listed} {what.removesuffix('s') if list(numbers) == [1] else what}"


def short(value: float) -> str:
    """Four digits."""
    return "unknown" if value is None or value != value else rounded(value, 4)


def interval(low: float | None, high: float | None) -> str:
    """Empty if it is not known."""
    return "" if low is None or high is None or pd.isna(low) or pd.isna(high) else f"{short(low)} to {short(high)}"
