"""Did the ranks of a run train together, or each for itself? A pure verdict on the steps that they
reported and on the connections of their rendezvous.

Ranks that train alone, side by side, look like perfect scaling. Two things show them: losses that
are equal to the last digit on all ranks, and ranks of which one is ahead by more than a step, which
an average of gradients does not allow.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ddlbench.run.meeting import Met

YES, NO, UNCONFIRMED = "yes", "no", "unconfirmed"
NOBODY = "not confirmed that these ranks trained together"
LEAST = 4  # steps that several ranks tell
AHEAD = 1.5  # steps: ranks that average gradients are at most one apart, and lines take their time
LEAST_S = 0.05  # by less nobody can tell that lines of two ranks came apart
# of the mean time between lines: lines that come closer were kept back, and their times say nothing
TOGETHER = 0.05
DIGITS, MANY = (
    4,
    10,
)  # losses with so many digits, or so many different losses, are not equal by chance
ALONE = re.compile(
    r"\bworld[ _-]?size\W{1,3}(\d+)\b|\bon (\d+) (?:GPU|CPU|rank|worker|process|device)", re.I
)


class Told(NamedTuple):
    """A rank's statement about a step: its number, or epoch and number; when [s since 1970]; its
    loss, as it was written.
    """

    step: Hashable
    time_s: float
    loss: str | float | None = None


@dataclass(frozen=True)
class Verdict:
    """The verdict whether ranks trained together (YES, NO, UNCONFIRMED), and what shows it."""

    together: str
    by: str


def judge(
    workers: int,
    reports: Mapping[int, Sequence[Told]],
    met: Met,
    stated: int | None = None,
    says_one_rank: bool = False,
    one_clock: bool = True,
) -> Verdict:
    """Return whether the ranks trained together.

    `stated` is the number of ranks that the program's output states, `says_one_rank` whether a line
    says that it is a single rank. With several clocks only the growth of a distance counts.
    """
    if workers == 1:
        return Verdict(YES, "it has one rank")
    ranks = in_step(reports, workers)
    if ahead := _ahead(ranks, one_clock):
        return Verdict(NO, f"a rank was ahead of another by {ahead:.3g} steps")
    if stated is not None and stated != workers:
        return Verdict(NO, f"its output says that {stated} of {workers} ranks train together")
    joined = met.joined >= workers
    if _equal_losses(ranks):
        equal = f"losses are equal to the last digit on {len(ranks)} ranks"
        if joined or stated == workers:
            return Verdict(
                UNCONFIRMED, f"{equal}, which met: these are averages, or the same training on each"
            )
        return Verdict(NO, equal)
    if says_one_rank and not joined and stated is None:
        return Verdict(NO, f"its output says that it is one rank, but the run has {workers}")
    if stated == workers:
        return Verdict(YES, f"its output says that {workers} ranks train together")
    if joined:
        return Verdict(YES, "all ranks joined the rendezvous")
    if met.listened:
        return Verdict(UNCONFIRMED, f"{NOBODY}: {met.joined} of {workers} joined the rendezvous")
    if met.listened is False:
        return Verdict(UNCONFIRMED, f"{NOBODY}: no process listened at MASTER_PORT")
    return Verdict(UNCONFIRMED, NOBODY)


def says_alone(texts: Iterable[str], workers: int) -> bool:
    """Return whether lines say that a single rank trains, and none says that all of them do."""
    stated = {int(found[1] or found[2]) for text in texts for found in ALONE.finditer(text)}
    return 1 in stated and workers not in stated


def in_step(reports: Mapping[int, Sequence[Told]], workers: int) -> list[list[Told]]:
    """Return the reports of each rank on the same steps, in the same order; none of a single rank.

    Where nobody says which rank a line is of, each step that comes `workers` times is of all of
    them.
    """
    ranks = [[*of_rank] for of_rank in reports.values() if of_rank]
    if len(ranks) == 1:
        ranks = _unlabelled(ranks[0], workers)
    if len(ranks) < 2:
        return []
    common = 0
    for steps in zip(*ranks, strict=False):
        if len({one.step for one in steps}) > 1:
            break
        common += 1
    return [rank[:common] for rank in ranks] if common >= LEAST else []


def _unlabelled(lines: Sequence[Told], workers: int) -> list[list[Told]]:
    """Return the lines of several ranks by rank: the first time that a step comes is of one, the
    second of another. A program that prints each line twice, one behind the other, is one rank.
    """
    lines = [
        b
        for a, b in itertools.pairwise([Told(None, 0.0), *lines])
        if (a.step, a.loss) != (b.step, b.loss)
    ]
    ranks: list[list[Told]] = [[] for _ in range(workers)]
    times: dict[Hashable, int] = {}
    for line in lines:
        count = times.get(line.step, 0)
        times[line.step] = count + 1
        ranks[count % workers].append(line)
    whole = len(ranks[-1])
    return ranks if whole >= LEAST and whole >= 0.8 * len(ranks[0]) else []


def _ahead(ranks: Sequence[Sequence[Told]], one_clock: bool) -> float:
    """Return by how many steps one rank was ahead of another for most of the second half; 0 if by
    no more than ranks that wait for each other can be.
    """
    if not ranks or any(_in_bursts(rank) for rank in ranks):
        return 0.0
    count = len(ranks[0])
    lag_s = [
        [one.time_s - first.time_s for one, first in zip(rank, ranks[0], strict=True)]
        for rank in ranks
    ]
    if not one_clock:
        lag_s = [
            [one - statistics.median(rank[: max(count // 4, 1)]) for one in rank] for rank in lag_s
        ]
    step_s = statistics.median((rank[-1].time_s - rank[0].time_s) / _moved(rank) for rank in ranks)
    apart_s = [max(at) - min(at) for at in zip(*lag_s, strict=True)]
    late_s = statistics.median(apart_s[count // 2 :])
    return late_s / step_s if step_s > 0 and late_s > max(AHEAD * step_s, LEAST_S) else 0.0


def _moved(rank: Sequence[Told]) -> float:
    """Return the steps between the first and the last line of a rank; lines of parts of a step are
    parts of one.
    """
    numbers = [one.step[-1] if isinstance(one.step, tuple) else one.step for one in rank]
    moved = [
        b - a
        for a, b in itertools.pairwise(numbers)
        if isinstance(a, int | float) and isinstance(b, int | float)
    ]
    usual = statistics.median(moved) if len(moved) == len(rank) - 1 else 1
    return (usual if usual > 0 else 1) * (len(rank) - 1)


def _in_bursts(rank: Sequence[Told]) -> bool:
    """Return whether most lines came together with others."""
    took = [b.time_s - a.time_s for a, b in itertools.pairwise(rank)]
    mean = sum(took) / len(took)
    return mean <= 0 or sum(one <= TOGETHER * mean for one in took) >= len(took) / 2


def _equal_losses(ranks: Sequence[Sequence[Told]]) -> bool:
    """Return whether all ranks tell the same losses, and not by chance."""
    losses = [[one.loss for one in rank] for rank in ranks]
    if not ranks or any(one is None or one != one for rank in losses for one in rank):
        return False
    if any(rank != losses[0] for rank in losses):
        return False
    different = {*losses[0]}
    exact = all(len(re.sub(r"[eE].*|\D", "", str(one)).lstrip("0")) >= DIGITS for one in different)
    return len(different) >= (LEAST - 1 if exact else MANY)
