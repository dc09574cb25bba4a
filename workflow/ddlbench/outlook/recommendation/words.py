"""The recommendation as text: the first candidate, its reason and interval, and what would change the answer."""

import math
from collections.abc import Iterator
from typing import Any

from ddlbench.core import registry
from ddlbench.core.plural import between, count_of, duration, rounded
from ddlbench.outlook.changes import WIDEST
from ddlbench.outlook.predictions import PREDICTED
from ddlbench.outlook.recommendation.candidates import LOGGED, half_widths
from ddlbench.outlook.recommendation.choice import Choice, faster_by
from ddlbench.outlook.recommendation.convergence import REFERENCE

Row = dict[str, Any]


def lines(choice: Choice, target: float) -> Iterator[str]:
    """What is said of one model on one data set."""
    first, front = choice.first, [row for row in choice.ordered if row["front"]]
    ours = first["dataset"] == registry.OWN
    subject = (
        first["model"]
        + f" on {first['dataset']}" * (not ours)
        + (f", {first['accelerator']}," if first["accelerator"] else "")
    )
    yield f"{subject} to top-1 {target:g}, {count_of(len(choice.ordered), 'candidate')}:"
    several = " (one of several that the data cannot separate, see below)" if choice.alike else ""
    yield f"  take {name(first)}{several}"
    yield f"    it takes {numbers(first)}"
    source = f"predicted from {first['measured_workers']} workers"
    if first["speed_by"] != PREDICTED:
        source = f"measured (n = {first['repeats']})"
    rate = f"{rounded(first['images_per_s'], 3)} {first['sample']}/s"
    yield f"    throughput: {rate}, {source}; epochs: {_epochs(first)}"
    more = any(row["workers"] > first["workers"] for row in choice.ordered)
    why = "candidates with more workers cost more than they save" if more else "no candidate has more workers"
    yield f"    reason: the smallest product of time and worker hours; {why}"
    if choice.alike:
        yield f"  the data cannot separate it from {count_of(len(choice.alike), 'other')}:"
        yield from (f"    {name(row)}: {numbers(row)}" for row in choice.alike)
    measured = [row for row in choice.ordered if row["speed_by"] != PREDICTED]
    if first["speed_by"] == PREDICTED and measured:
        yield f"  the best with measured throughput: {name(measured[0])}: {numbers(measured[0])}"
    least = min(choice.ordered, key=lambda row: (row["hours"], row["worker_hours"]))
    cheap = min(choice.ordered, key=lambda row: (row["worker_hours"], row["hours"]))
    yield f"  the least time: {name(least)}: {numbers(least)}"
    cheapest_by = "the least price" if cheap["price"] is not None else "the fewest worker hours"
    yield f"  {cheapest_by}: {name(cheap)}: {numbers(cheap)}"
    yield f"  on the front of time against price: {len(front)} of {len(choice.ordered)} (column front)"
    if choice.second is None:
        yield "  there is no second candidate" + (
            "" if first["system"] else ": more workers, loaders or frameworks would give one"
        )
    else:
        share = faster_by(first, choice.second)
        percent = f"{100 * share:.2g} %" if share >= 0.001 else "less than 0.1 %"
        yield (
            f"  second: {name(choice.second)}: {numbers(choice.second)}; it would be first if it took "
            f"{percent} less time, by more throughput or fewer epochs"
        )
    if not first["system"]:
        yield f"  what would shrink the interval of the first most: {_narrower(first)}"


def name(row: Row) -> str:
    """A candidate in a few words; what is predicted says so."""
    size = f"{count_of(row['workers'], 'worker')}, batch {row['global_batch']}"
    if row["system"]:
        return f"{row['system']} ({row['framework']}), {size}"
    mark = " [predicted]" if row["speed_by"] == PREDICTED else ""
    length = "" if row["of_epochs"] is None else f" over {count_of(row['of_epochs'], 'epoch')}"
    if row["dataset"] == registry.OWN:
        return f"{row['framework']}, {size}"
    variant = "" if row["options"] in (None, "{}") else f" {row['options']}"
    return (
        f"{row['framework']}{variant}, {row['loader']}, {size}, "
        f"schedule {row['schedule']}{length}, recipe {row['recipe']}{mark}"
    )


def numbers(row: Row) -> str:
    """Time, worker hours, price and energy, as far as they are known."""
    interval = "no interval"
    if row["hours_low"] is not None and row["hours_high"] > WIDEST * row["hours_low"]:
        interval = "too noisy for an interval"
    elif row["hours_low"] is not None:
        basis = {"rate": ", of the throughput only", LOGGED: ", by the log"}.get(row["interval_of"], "")
        interval = f"95 %: {between(row['hours_low'], row['hours_high'], say=_hours)}{basis}"
    parts = [f"{_hours(row['hours'])} ({interval})", f"{rounded(row['worker_hours'], 3)} worker hours"]
    if row["price"] is not None:
        parts.append(f"{rounded(row['price'], 3)} {row['currency'] or ''}".strip())
    if row["energy_kwh"] is not None:
        parts.append(f"{rounded(row['energy_kwh'], 3)} kWh")
    return ", ".join(parts)


def _epochs(row: Row) -> str:
    low, high = (f"{row[end] or math.nan:.3g}" for end in ("epochs_low", "epochs_high"))
    interval = "" if low == "nan" else f" ({low} to {high})" if low != high else " in all runs"
    return f"{row['epochs_to_target']:.3g}{interval}, by {row['epochs_by']}"


def _narrower(row: Row) -> str:
    """The run that would help most: of the wider of the two intervals, or of the one that nobody knows."""
    full = f"full trainings at batch {row['global_batch']}"
    full += f" with schedule {row['schedule']}" * (row["schedule"] != registry.OWN)
    speed = f"more repeats with {count_of(row['workers'], 'worker')}"
    if row["speed_by"] == PREDICTED:
        speed = f"runs with {count_of(row['next_run'] or row['workers'], 'worker')}"
    if str(row["epochs_by"]).startswith(REFERENCE):
        unknown = "the epochs are the reference's, with its recipe, and nobody published their interval"
        return f"{speed}; beside it {full}: {unknown}"
    if row["images_per_s_low"] is None:
        return f"{speed}: one run has no interval"
    if row["epochs_low"] is None:
        return f"{full}: the epochs of one run have no interval"
    rate, both = half_widths(row, epochs=False), half_widths(row)
    assert rate and both  # both intervals are known here
    if sum(both) ** 2 > 2 * sum(rate) ** 2:
        return f"{full}, because the epochs are less sure than the throughput"
    return f"{speed}, because the throughput is less sure than the epochs"


def _hours(hours: float) -> str:
    return duration(3600 * hours, lambda value: rounded(value, 3))
