"""Which of the time between two lines was training, and which was something else.

A program stops to validate, to write a checkpoint, to log. Where it prints such lines it says so
itself. Elsewhere only the length of an interval shows it, and a busy machine makes long intervals
of training, too. All functions here are pure.
"""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddlbench.run.readings._counting import Numbering
from ddlbench.run.readings._values import StepEnd

RARE = 0.05  # of the intervals: what is longer more often is how the program trains
FEW = 8  # intervals, of which nobody can tell what is usual
PAUSES_APART = 10  # intervals at least lie between pauses that nothing but their length tells
# a gap is longer than the usual by so many standard deviations, as the median of deviations tells
# them
SPREADS = 8
LONGER = 0.5  # and by this share of the usual
STEPS_LONG = 2.5  # steps at least fit into a gap: less is a slow step
LATE = 0.7  # of the usual: a shorter interval beside a longer one shows a line that came late
# Times the usual: what a busy machine does not do to a step; with SPREADS in the logarithm. Less is
# a pause only if something else than its length shows it.
OUTSIDE = 5
FEWEST_RECURRING = 3  # gaps of one distance
MOST_BETWEEN = 1 / 3  # of the gaps may be others
EXPLAINED = 0.2  # a time that is printed explains an interval that differs by no more
MATTERS = 0.05  # of the time of training: what is not known for sure and is more is said
OFTEN = 0.2  # of the intervals: words that come more often mark some only if most of them are long
WIDE = 2  # times the first quartile: a longer mean shows that some intervals hold something else

EPOCH, LINE = "epoch", "line"  # what may mark an interval, whatever its length
WORDS, TIME, RECURS, LENGTH = "words", "printed time", "distance", "length"  # what shows a gap


@dataclass(frozen=True)
class Interval:
    """The time between two points: so many steps in so long, of which `pause_s` was something
    else, as `why` shows.
    """

    start: StepEnd
    end: StepEnd
    took_s: float
    pause_s: float = 0.0
    why: str = ""

    @property
    def steps(self) -> int:
        return int(self.end.step - self.start.step)

    @property
    def each_s(self) -> float:
        return (self.took_s - self.pause_s) / self.steps


@dataclass(frozen=True)
class Usual:
    """The time of a step between two lines: the median, the standard deviation by the median of
    deviations [s], and that of the logarithm.
    """

    step_s: float
    spread_s: float
    log_spread: float

    def over(self, interval: Interval) -> float:
        """Return how much longer an interval took than its steps usually do [s]."""
        return interval.took_s - interval.steps * self.step_s

    def is_gap(self, interval: Interval) -> bool:
        most_s = self.step_s * (1 + LONGER) + SPREADS * self.spread_s
        return interval.each_s > most_s and self.over(interval) > STEPS_LONG * self.step_s

    def is_over(self, interval: Interval) -> bool:
        """Return whether an interval that is marked is longer than others."""
        return self.over(interval) > interval.steps * (0.1 * self.step_s + 2 * self.spread_s)

    def is_outside(self, interval: Interval) -> bool:
        """Return whether an interval is longer than a busy machine makes it."""
        return interval.each_s >= self.step_s * max(OUTSIDE, math.exp(SPREADS * self.log_spread))


def intervals(
    of: Numbering, paused_s: Sequence[float] = (), hinted_s: Sequence[float] = ()
) -> tuple[list[Interval], str]:
    """Return the intervals between points, with what in them is no training; and what to say of
    those of which nobody can tell.

    `paused_s` are times at which the program says that it does something else: a line of a
    validation. What takes longer than usual over such a line is a pause, and over ends of epochs
    where that recurs. Other gaps are pauses if something else shows it: a line whose words say so
    (`hinted_s`), a time of the step that the program prints and that leaves the gap out, or an even
    distance from one to the next. A gap that the printed time explains is training. One that
    nothing shows but its length must be far outside the spread.
    """
    pairs = [
        Interval(a, b, max(b.time_s - a.time_s, 0.0))
        for a, b in itertools.pairwise(of.ends)
        if b.step > a.step
    ]
    marked = _holding(pairs, paused_s)
    why = [_marked(n in marked, n + 1 in of.first_of_epoch) for n in range(len(pairs))]
    plain = [n for n, reason in enumerate(why) if not reason]
    if len(plain) < 2:
        return pairs, ""
    hinted = _holding(pairs, hinted_s)
    without = [n for n in plain if n not in hinted]
    usual = _usual([pairs[n] for n in (without if 3 * len(without) > len(pairs) else plain)])
    over = {n for n, reason in enumerate(why) if reason and usual.is_over(pairs[n])}
    once = _once(why, over)
    gaps = [n for n in [*plain, *once] if usual.is_gap(pairs[n]) and not _late(pairs, n, usual)]
    shown, sure = _shown(pairs, sorted(gaps), usual, of, hinted)
    kept = [pairs[n] for n in plain if not shown.get(n)]
    each_s = sum(pair.took_s for pair in kept) / max(sum(pair.steps for pair in kept), 1)
    found = []
    for n, pair in enumerate(pairs):
        reason = why[n] if n in over and n not in once else shown.get(n, "")
        pause_s = max(pair.took_s - pair.steps * (each_s or usual.step_s), 0.0) if reason else 0.0
        found.append(Interval(pair.start, pair.end, pair.took_s, pause_s, reason))
    warm = next((n for n, gap in enumerate([*sorted(gaps), len(pairs)]) if gap != n), 0)
    return found, _doubt(found, [n for n in gaps if n not in sure], usual, found[warm:])


def _marked(by_line: bool, by_epoch: bool) -> str:
    """Return why an interval may hold something else than training, whatever its length."""
    if by_line:
        return LINE
    return EPOCH if by_epoch else ""


def _holding(pairs: Sequence[Interval], times_s: Sequence[float]) -> set[int]:
    """Return the intervals in which one of these times lies."""
    times_s = sorted(times_s)
    found = set()
    for n, pair in enumerate(pairs):
        place = bisect.bisect_left(times_s, pair.start.time_s)
        if place < len(times_s) and times_s[place] <= pair.end.time_s:
            found.add(n)
    return found


def _usual(plain: Sequence[Interval]) -> Usual:
    usual = statistics.median(
        each for pair in plain for each in [pair.each_s] * min(pair.steps, 1000)
    )
    spread = 1.4826 * statistics.median(abs(pair.each_s - usual) for pair in plain)
    logs = [math.log(pair.each_s / usual) for pair in plain if pair.each_s > 0 and usual > 0]
    middle = statistics.median(logs) if logs else 0.0
    log_spread = 1.4826 * statistics.median(abs(one - middle) for one in logs) if logs else 0.0
    return Usual(usual, spread, log_spread)


def _once(why: Sequence[str], over: set[int]) -> set[int]:
    """Return the long intervals over ends of epochs where most of such intervals are not long: a
    validation would come again.
    """
    crossing = [n for n, reason in enumerate(why) if reason == EPOCH]
    long = {n for n in crossing if n in over}
    return long if len(crossing) > 2 and 2 * len(long) < len(crossing) else set()


def _late(pairs: Sequence[Interval], n: int, usual: Usual) -> bool:
    """Return whether a line beside this interval only came late: the next interval is shorter, and
    both together are no gap.
    """
    for a, b in ((n - 1, n), (n, n + 1)):
        if (
            a >= 0
            and b < len(pairs)
            and min(pairs[a].each_s, pairs[b].each_s) < LATE * usual.step_s
        ):
            both = Interval(pairs[a].start, pairs[b].end, pairs[a].took_s + pairs[b].took_s)
            if not usual.is_gap(both):
                return True
    return False


def _shown(
    pairs: Sequence[Interval],
    gaps: Sequence[int],
    usual: Usual,
    of: Numbering,
    hinted: set[int],
) -> tuple[dict[int, str], set[int]]:
    """Return what shows of each gap that it is a pause, empty where it counts as training; and the
    gaps of which that is sure.
    """
    long = hinted & {*gaps}
    if len(hinted) > OFTEN * len(pairs) and 2 * len(long) <= len(hinted):
        hinted = set()
    outside = [n for n in gaps if usual.is_outside(pairs[n])]
    recurring = _recurring(pairs, gaps, of) | _recurring(pairs, outside, of)
    explained = printed(pairs, usual)
    shown = dict.fromkeys(gaps, "")
    shown |= {n: TIME for n in gaps if explained.get(n) is False}
    shown |= {n: RECURS for n in gaps if n in recurring} | {n: WORDS for n in gaps if n in hinted}
    rest = [n for n in gaps if not shown[n] and not explained.get(n)]
    apart = all(b - a >= PAUSES_APART for a, b in itertools.pairwise(rest))
    enough = len(pairs) - len(gaps) >= FEW and (len(rest) <= RARE * len(pairs) or apart)
    # Of the first intervals, which are warm-up, and are cut, it makes no difference.
    sure = {n for place, n in enumerate(gaps) if shown[n] or n == place}
    sure |= {n for n in gaps if explained.get(n) and n not in outside}
    shown |= {n: LENGTH for n in rest if enough and n in outside}
    return shown, sure


def _recurring(pairs: Sequence[Interval], gaps: Sequence[int], of: Numbering) -> set[int]:
    """Return the gaps that come again after as many steps, from the run's beginning to its end:
    slow steps would come at any.
    """
    steps = {n: pairs[n].start.step for n in gaps}
    first, last, slack = pairs[0].start.step, pairs[-1].end.step, of.every
    best: set[int] = set()
    for a in gaps[:3]:
        for b in [n for n in gaps if n > a][:5]:
            distance = steps[b] - steps[a]
            if b - a < PAUSES_APART or steps[a] - first > distance + slack:
                continue
            found, at = {a}, steps[a] + distance
            while at < last - slack:
                hit = next((n for n in gaps if abs(steps[n] - at) <= slack), None)
                if hit is None:
                    break
                found.add(hit)
                at = steps[hit] + distance
            else:
                best = max(best, found, key=len)
    alike = len(best) >= max(FEWEST_RECURRING, (1 - MOST_BETWEEN) * len(gaps))
    return best if alike else set()


def printed(pairs: Sequence[Interval], usual: Usual) -> dict[int, bool]:
    """Return what the times of a step that the program prints show of intervals: True where they
    explain its length, False where they say that its steps took as long as usual. Others are left
    out.

    What is printed may be of other units, or of one rank, so that only its ratio to the clock
    counts. It says that steps took no longer only if it follows the clock elsewhere: a mean since
    the start, or the time of the last step, does not.
    """
    ratio = {
        n: pair.each_s / pair.end.step_s
        for n, pair in enumerate(pairs)
        if pair.end.step_s is not None and pair.end.step_s > 0 and pair.each_s > 0
    }
    if len(ratio) < max(3, len(pairs) / 2):
        return {}
    middle, apart = statistics.median(ratio.values()), follows(ratio.values())
    if apart > max(1.5 * usual.log_spread, 0.1):
        return {}  # not the time of a step: the time since the start
    follow = apart <= max(0.5 * usual.log_spread, 0.01)
    near_s = 2 * usual.spread_s + 0.02 * usual.step_s
    found = {}
    for n, one in ratio.items():
        told_s = pairs[n].each_s / one * middle
        if abs(told_s - pairs[n].each_s) <= EXPLAINED * pairs[n].each_s:
            found[n] = True
        elif follow and abs(told_s - usual.step_s) <= near_s:
            found[n] = False
    return found


def follows(ratios: Iterable[float]) -> float:
    """Return how far ratios are from each other: the standard deviation of their logarithm, by the
    median of deviations. It is small where one thing follows the other.
    """
    logs = [math.log(one) for one in ratios]
    middle = statistics.median(logs)
    return 1.4826 * statistics.median(abs(one - middle) for one in logs)


def _doubt(
    found: Sequence[Interval], unsure: Sequence[int], usual: Usual, warm: Sequence[Interval]
) -> str:
    """Return what to say of intervals that may or may not be training, if that makes a difference;
    `warm` are those after the first ones.
    """
    train_s = sum(pair.took_s - pair.pause_s for pair in found)
    kept = [found[n] for n in unsure if not found[n].why]
    alone = [found[n] for n in unsure if found[n].why]
    each = [pair.each_s for pair in warm]
    say = "A pattern with (?P<pause>...) says which lines are of something else"
    if sum(usual.over(pair) for pair in kept) > MATTERS * train_s:
        return (
            f"{len(kept)} of {len(found)} intervals are outliers, and count as training:"
            f" validation or slow data? {say}"
        )
    if sum(pair.pause_s for pair in alone) > MATTERS * train_s:
        return (
            f"{len(alone)} of {len(found)} intervals are outliers, and count as pauses for their"
            f" length alone: validation or a slow machine? {say}"
        )
    if len(each) > 3 and statistics.mean(each) > WIDE * (low := statistics.quantiles(each)[0]):
        return (
            f"a quarter of its intervals take {low:.3g} s a step or less, and the mean is"
            f" {statistics.mean(each):.3g} s: validation or slow data? {say}"
        )
    return ""
