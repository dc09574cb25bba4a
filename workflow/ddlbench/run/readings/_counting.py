"""Numbers that a program tells become numbers of steps over the whole run, and lines that came
together get times that they can have.

Programs count each epoch anew, print now and then, and print through a pipe that keeps lines back.
All functions here are pure.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ddlbench.run.readings._values import StepEnd, UnreadError

UNSURE = 0.05  # of an epoch: more steps than that may not be missing behind its last line
MOST_LATE = (
    0.05  # of the lines: more that come behind lines of later steps leave no times to believe
)
TOGETHER = (
    0.05  # of the mean time of a line: lines that come closer were buffered and came together
)
FEW_BURSTS = 3
MOST_BACK_S = 10.0  # how late a line is read at most; a clock that goes back by more was set
AT_ONCE_S = 5e-4  # between two lines on average: about as long as they take through a pipe


@dataclass
class Numbering:
    """The ends of steps, counted over the complete run.

    `first_of_epoch` are places in `ends`; `per_epoch`: steps, if known. `every` is the usual number
    of steps between two of them.
    """

    ends: list[StepEnd]
    first_of_epoch: set[int] = field(default_factory=set)
    per_epoch: int | None = None
    every: int = 1
    epochs: int = 1


def numbered(
    points: Sequence[StepEnd],
    again_s: Sequence[float] = (),
    per_epoch: int | None = None,
    ranks: int = 1,
) -> Numbering:
    """Return the points with numbers over the whole run, each number once.

    `per_epoch` is what the program's file says; else the totals count that the program prints
    (`100/600`), else what the epochs themselves show. The first time of a step counts, and the last
    loss before the next step: bars show the loss of the step before at first. Raises UnreadError
    where steps cannot be counted.
    """
    points = _in_order(
        [point for point in points if math.isfinite(point.time_s) and math.isfinite(point.step)]
    )
    epochs = _epochs(points, again_s, ranks)
    several = len(set(epochs)) > 1
    every = _usual_distance(points, epochs)
    length = _length(points, epochs, every, per_epoch) if several else None
    crossing = _told_epochs(points) or epochs
    found = Numbering([], per_epoch=length, every=every, epochs=max(crossing, default=0) + 1)
    places: dict[int, int] = {}
    usual_s = _usual_time(points, epochs, again_s)
    starts, lost_s, highest, late = [*again_s], 0.0, 0, 0
    furthest = -math.inf  # step of this try
    for point, epoch, told in zip(points, epochs, crossing, strict=True):
        step = round(point.step + epoch * (length or 0))
        interrupted = False
        while starts and starts[0] <= point.time_s:
            starts.pop(0)
            interrupted = True
        if interrupted and found.ends:
            before = found.ends[places.get(step, -1)]
            lost_s = max(point.time_s - before.time_s - (step - before.step) * usual_s, 0.0)
        if interrupted:
            furthest = -math.inf
        late += step < furthest and step not in places
        furthest = max(furthest, step)
        if step in places:
            place = places[step]
            kept = found.ends[place]
            missing = {k: v for k, v in point._asdict().items() if getattr(kept, k) is None}
            if place == len(found.ends) - 1 and point.loss is not None and not interrupted:
                missing["loss"] = point.loss
            found.ends[place] = kept._replace(**missing)
        elif not found.ends or step > found.ends[-1].step:
            if found.ends and told > highest:
                found.first_of_epoch.add(len(found.ends))
            highest = max(highest, told)
            places[step] = len(found.ends)
            found.ends.append(point._replace(step=step, time_s=point.time_s - lost_s))
    if late > MOST_LATE * len(points):
        raise UnreadError(
            f"{late} of its {len(points)} lines follow lines of later steps: let only one rank"
            " print"
        )
    found.ends = _never_back(found.ends, usual_s)
    return found


def _never_back(ends: Sequence[StepEnd], usual_s: float) -> list[StepEnd]:
    """Return the ends of steps with times that never go back; `usual_s` is how long a step takes.

    On a busy machine a line is read later than it came, and then one that says itself when it came
    (`rank.py`) has an earlier time: those before it came before it. A clock that goes back by more
    was set back, or began anew in a run that went on: it goes on after one usual step.
    """
    forward: list[StepEnd] = []
    shift_s = 0.0
    for end in ends:
        at_s = end.time_s + shift_s
        if forward and at_s < forward[-1].time_s - MOST_BACK_S:
            expected_s = forward[-1].time_s + (end.step - forward[-1].step) * usual_s
            shift_s += expected_s - at_s
            at_s = expected_s
        forward.append(end._replace(time_s=at_s))
    ordered: list[StepEnd] = []
    least = math.inf
    for end in reversed(forward):
        least = min(least, end.time_s)
        ordered.append(end._replace(time_s=least))
    return ordered[::-1]


def _in_order(points: list[StepEnd]) -> list[StepEnd]:
    """Return the points with neighbours exchanged that came in the wrong order; times stay where
    they are. That is seen where steps then grow evenly.
    """
    if len(points) < 5 or any(point.epoch is not None for point in points):
        return points
    moved = [b.step - a.step for a, b in itertools.pairwise(points) if b.step != a.step]
    if not moved:
        return points
    usual_increment, first = statistics.mode(moved), min(point.step for point in points)
    points = [*points]

    def irregular_count(*steps: float) -> int:
        return sum(
            b - a not in (usual_increment, 0) and b != first for a, b in itertools.pairwise(steps)
        )

    for n in range(len(points) - 1):
        around = [point.step for point in points[max(n - 1, 0) : n + 3]]
        place = min(n, 1)
        other = [*around]
        other[place : place + 2] = around[place + 1], around[place]
        if irregular_count(*around) - irregular_count(*other) >= (
            2 if 0 < n < len(points) - 2 else 1
        ):
            a, b = points[n], points[n + 1]
            points[n], points[n + 1] = b._replace(time_s=a.time_s), a._replace(time_s=b.time_s)
    return points


def _told_epochs(points: Sequence[StepEnd]) -> list[int] | None:
    """Return the epochs that the program names, counted from 0. None if they are not integers."""
    if not points or any(
        point.epoch is None or point.epoch != int(point.epoch) for point in points
    ):
        return None
    first = min(int(point.epoch) for point in points if point.epoch is not None)
    return [int(point.epoch or 0) - first for point in points]


def _epochs(points: Sequence[StepEnd], again_s: Sequence[float], ranks: int) -> list[int]:
    """Return for each point the epoch in which it is counted, from 0: all 0 where steps count over
    the whole run.
    """
    told = _told_epochs(points)
    if told is not None:
        last: dict[int, float] = {}
        for point, epoch in zip(points, told, strict=True):
            last[epoch] = max(last.get(epoch, -math.inf), point.step)
        first: dict[int, float] = {}
        for point, epoch in zip(points, told, strict=True):
            first.setdefault(epoch, point.step)
        anew = any(
            b in first and a in last and first[b] <= last[a]
            for a, b in itertools.pairwise(sorted(first))
        )
        return told if anew else [0] * len(points)
    epochs, epoch, start, before = [], 0, math.inf, -math.inf
    starts, every = [*again_s], _usual_distance(points, [0] * len(points))
    for point in points:
        interrupted = bool(starts) and starts[0] <= point.time_s
        starts = [at_s for at_s in starts if at_s > point.time_s]
        if point.step < before and point.step <= start and not interrupted:
            epoch, start = epoch + 1, point.step
        if (
            interrupted and epoch and point.step > before + 2 * every
        ):  # its checkpoint was one of the epoch before
            epoch -= 1
        start = min(start, point.step)
        before = point.step
        epochs.append(epoch)
    if not epoch:
        return epochs
    problem = _not_alike(points, epochs)
    if problem is None:
        return epochs
    said = Counter(point.step for point in points)
    if (
        min(said.values()) < 2 or max(said.values()) > ranks
    ):  # else ranks print in turns, and all say the same
        raise UnreadError(problem)
    return [0] * len(points)


def _not_alike(points: Sequence[StepEnd], epochs: Sequence[int]) -> str | None:
    """Return what is wrong with the epochs that were found where numbers fall back; None if they
    look like epochs.
    """
    highs = [
        max(p.step for p, e in zip(points, epochs, strict=True) if e == n)
        for n in range(max(epochs) + 1)
    ]
    every = max(_usual_distance(points, epochs), 1)
    whole = highs[1:-1] or highs[:-1]
    far = [high for high in highs[:-1] if abs(high - statistics.median(whole)) > every]
    if not far and highs[-1] <= max(whole) + every:
        return None
    ends = ", ".join(f"{high:g}" for high in highs[:5])
    return (
        f"its step numbers go down {max(epochs)} times, after {ends}: epochs would end at the same"
        " number. Say (?P<epoch>...) if these are epochs; of ranks that print in turns, let one"
        " print"
    )


def _usual_distance(points: Sequence[StepEnd], epochs: Sequence[int]) -> int:
    """Return how many steps usually lie between two points of an epoch."""
    pairs = itertools.pairwise(zip(epochs, points, strict=True))
    apart = [b.step - a.step for (of_a, a), (of_b, b) in pairs if of_a == of_b and b.step > a.step]
    return max(1, round(statistics.median(apart))) if apart else 1


def _usual_time(
    points: Sequence[StepEnd], epochs: Sequence[int], again_s: Sequence[float]
) -> float:
    """Return the usual time of a step between two points of an epoch and of an attempt [s]; 0 if it
    is unknown.
    """
    took = []
    for (of_a, a), (of_b, b) in itertools.pairwise(zip(epochs, points, strict=True)):
        interrupted = any(a.time_s < at_s <= b.time_s for at_s in again_s)
        if of_a == of_b and b.step > a.step and not interrupted:
            took.append((b.time_s - a.time_s) / (b.step - a.step))
    return max(statistics.median(took), 0.0) if took else 0.0


def _length(points: Sequence[StepEnd], epochs: Sequence[int], every: int, said: int | None) -> int:
    """Return the steps of an epoch. Raises UnreadError if they cannot be known, or if the
    statements contradict each other.
    """
    last = max(epochs)
    whole = [p.step for p, epoch in zip(points, epochs, strict=True) if epoch < last]
    high, low = max(whole), min(point.step for point in points)
    totals = {point.total for point in points if point.total is not None}
    printed = round(max(totals)) if len(totals) == 1 and max(totals) >= high else None
    length, source = (said, "steps_per_epoch says") if said else (printed, "it prints a total of")
    least = round(high) + (low == 0 and printed is None)
    if length is None:
        one_each = len(whole) == len(set(epochs)) - 1
        most = least + every - 1
        if one_each or most - least > UNSURE * least:
            raise UnreadError(
                f"its epochs end at step {high:g} and it prints every {every}: how many steps"
                " follow is not known. Say steps_per_epoch, or (?P<of>...)"
            )
        return least
    if high > length or (high + 2 * every < length and length - high > UNSURE * length):
        raise UnreadError(
            f"{source} {length} steps an epoch, and its lines count to {high:g}, {every} apart:"
            " these are not steps, or lines are missing"
        )
    return length


def in_bursts(ends: Sequence[StepEnd]) -> tuple[list[StepEnd], list[int]]:
    """Return the points with times that they can have, and the places of the last point of each
    burst; none if they came one by one.

    Lines that were kept back come together, when 4 KiB are full: the last of a burst is on time,
    the others get times on a line between two bursts. Raises UnreadError if there are too few
    bursts to tell a rate.
    """
    took = [max(b.time_s - a.time_s, 0.0) for a, b in itertools.pairwise(ends)]
    if len(took) < 4:
        return [*ends], []
    mean = sum(took) / len(took)
    if mean < AT_ONCE_S:
        raise UnreadError(
            f"{len(ends)} lines came within {sum(took):.2g} s, all at once: the output was"
            " buffered, so its times are not usable. Let it print unbuffered: print(...,"
            " flush=True), python -u, or stdbuf -oL before the command"
        )
    close = [one <= TOGETHER * mean for one in took]
    if sum(close) < len(took) / 2:
        return [*ends], []
    last = [n for n in range(len(ends)) if n == len(ends) - 1 or not close[n]]
    if len(last) < FEW_BURSTS:
        raise UnreadError(
            f"{len(ends)} lines came in {len(last)} bursts: the output was buffered, so its times"
            " are not usable. Let it print unbuffered: print(..., flush=True), python -u, or stdbuf"
            " -oL before the command"
        )
    first, final = ends[last[0]], ends[last[-1]]
    each_s = (final.time_s - first.time_s) / (final.step - first.step)
    placed = [*ends]
    for n in range(last[0]):
        placed[n] = ends[n]._replace(time_s=first.time_s - each_s * (first.step - ends[n].step))
    for a, b in itertools.pairwise(last):
        rate = (ends[b].time_s - ends[a].time_s) / (ends[b].step - ends[a].step)
        for n in range(a + 1, b):
            placed[n] = ends[n]._replace(
                time_s=ends[a].time_s + rate * (ends[n].step - ends[a].step)
            )
    return placed, last


def told_steps(of: Numbering, bursts: Sequence[int]) -> list[list[int]]:
    """Return how many steps have one mean time, from the first to the last: those between two
    lines, or two bursts of lines. Each item is a number of steps, and how often it comes in turn.
    """
    places = bursts if bursts else range(len(of.ends))
    ends = [of.ends[place].step for place in places]
    steps = [round(b - a) for a, b in itertools.pairwise([of.ends[0].step, *ends]) if b > a]
    return [[size, len([*some])] for size, some in itertools.groupby(steps)]
