"""Two sides over all settings in which both were tried: one ratio, its interval, in how many
settings a side leads.

A block is a setting: runs that share everything but the sides that are compared, and their repeat.
Values are logarithms of rates, or points of accuracy. Runs of the same repeat in a block are a
pair, of which the difference counts. docs/statistics.md has the formulas; `bench/answers.py`
measures on studies with known truth what they hold. All functions are pure.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean, median
from typing import Any, TypeVar

from scipy import special

from ddlbench.analysis.intervals import LEVEL, NOISE, VERDICT_LEVEL, student_t
from ddlbench.analysis.significance import FEWEST, LEAST, POWER, Comparison, more_repeats

Side = TypeVar("Side", bound=Hashable)
Cells = Mapping[Any, Mapping[Any, float]]  # side -> repeat -> value
OVER_SETTINGS = 3  # from so many settings on their own spread makes the interval
FEW_SETTINGS = 5  # up to so many may agree by chance
MOST_REPEATS = 100  # more are made by nobody
# As how many comparisons a verdict counts that is asked for at each of so many looks
# (`plan/rounds.py`): the same level at each look, which is the alpha spending function of Pocock's
# type (Lan and DeMets 1983, Biometrika 70:659; Pocock 1977, Biometrika 64:191). Their normal theory
# has 1.7, 2.2 and 2.7; with two to five repeats Student's t moves more from look to look, so these
# are calibrated: with them 4 % stay at most 5 %, for 1 to 45 pairs of sides, from 2 to 5 repeats on
# (bench/rounds.py).
LOOKS = {1: 1.0, 2: 1.8, 3: 2.5, 4: 3.5}


@dataclass(frozen=True)
class Block:
    """A setting with the values of each side by repeat.

    `place` distinguishes it from others, `size` is where it lies along an axis, such as its number
    of workers.
    """

    place: Hashable
    cells: Cells
    size: float = 0.0

    def goes_by_run(self, side: Hashable, other: Hashable) -> bool:
        """Tell whether the values of both sides go by the names of runs, which make no pairs
        (`together.by_repeat`).
        """
        return all(isinstance(key, str) for name in (side, other) for key in self.cells[name])

    def pairs(self, side: Hashable, other: Hashable) -> list[float]:
        """Return a side minus the other by repeat; where no repeat is on both sides, the difference
        of their medians.
        """
        left, right = self.cells[side], self.cells[other]
        common = sorted({*left} & {*right})
        if not common:
            return [median(left.values()) - median(right.values())]
        return [left[repeat] - right[repeat] for repeat in common]


@dataclass(frozen=True)
class Pooled:
    """A side minus the other over all settings, with its 95 % confidence interval; without bounds
    where nothing says how runs vary.

    `n` are the pairs of the setting that has most. `verdict` is 1 if the side is significantly
    above the other, -1 if below, 0 if the difference is not significant. `spread` is that of one
    pair, with `free` degrees of freedom.
    """

    middle: float
    low: float | None
    high: float | None
    settings: int
    leads: int
    n: int
    pairs: int
    verdict: int
    spread: float
    free: float
    between: float = math.nan  # the standard deviation of settings, where it makes the interval


@dataclass(frozen=True)
class Spread:
    """The standard deviation of a pair's difference, over all pairs of sides, with its degrees of
    freedom: 0 if no setting was repeated. `between` is the median over pairs of sides of the
    standard deviation of their settings.
    """

    deviation: float
    free: float
    between: float = 0.0


def shared(blocks: Sequence[Block], side: Hashable, other: Hashable) -> list[Block]:
    """Return the blocks that have both sides."""
    return [block for block in blocks if side in block.cells and other in block.cells]


def compare(
    blocks: Sequence[Block],
    side: Hashable,
    other: Hashable,
    comparisons: float = 1.0,
    noise: float = NOISE,
    fewest: int = FEWEST,
    overall: Spread | None = None,
) -> Pooled:
    """Return a side minus the other, pooled over the blocks that have both. Raises ValueError if
    there are none.

    With three settings or more: the mean over settings of the median of their pairs, with Student's
    t over settings, whose spread holds the noise of runs and what differs between settings. With
    fewer: the mean over settings of their pairs, with Student's t and the spread of pairs
    (`_spread`). Runs of others in one setting are no pairs: the sides are compared as they are
    (`unpaired`). The verdict asks for `fewest` pairs, and that 0 is outside of the interval at
    level 1 - 0.04 / `comparisons`, as for one of so many comparisons of which any would decide; or
    that this holds in each of several settings. Of two settings none may say the opposite. An
    interval is never widened for the verdict's sake. `overall` is the spread of all pairs of sides,
    where it is known.

    Source: the setting as a block, Montgomery 2017, Design and Analysis of Experiments, section
    4.1; the t interval over settings, Hartung & Knapp 2001, Stat Med 20:3875, with equal weights.
    """
    both = shared(blocks, side, other)
    if not both:
        raise ValueError(f"{side} and {other} share no setting")
    if len(both) == 1 and both[0].goes_by_run(side, other):
        found = unpaired(both[0].cells, side, other, (), comparisons, noise)
        return found if found.n >= fewest else replace(found, verdict=0)
    groups = [block.pairs(side, other) for block in both]
    middles = [median(pairs) for pairs in groups]
    middle, count, total = fmean(middles), len(groups), sum(map(len, groups))
    overall = overall or spread_of(both)
    spread, free = _spread(groups, overall, noise)
    if count >= OVER_SETTINGS:
        centre, freedom = middle, count - 1.0
        shown = max(_deviation(middles), noise) / math.sqrt(count)
        error = max(shown, _least_spread(overall, groups, spread, free) / math.sqrt(count))
    else:
        centre, freedom = fmean(fmean(pairs) for pairs in groups), free
        shown = error = spread * math.sqrt(sum(1 / len(pairs) for pairs in groups)) / count
    limit = 1 - (1 - VERDICT_LEVEL) / comparisons
    verdict = _side_of_zero(centre, error, freedom, limit) if total >= fewest else 0
    if not verdict and count > 1 and free:
        per_setting = {
            _side_of_zero(fmean(pairs), spread / math.sqrt(len(pairs)), free, limit)
            for pairs in groups
        }
        verdict = per_setting.pop() if len(per_setting) == 1 and total >= fewest else 0
    if count < OVER_SETTINGS and any(verdict * value < 0 for value in middles):
        verdict = 0  # two settings that disagree are no setting's noise
    low, high = (None, None)
    if freedom:
        width = student_t(LEVEL, freedom) * shown
        low, high = min(centre - width, middle), max(centre + width, middle)
    leads = sum(value > 0 for value in middles)
    between = _deviation(middles) if count >= OVER_SETTINGS else math.nan
    return Pooled(
        middle,
        low,
        high,
        count,
        leads,
        max(map(len, groups)),
        total,
        verdict,
        spread,
        free,
        between,
    )


def _side_of_zero(centre: float, error: float, free: float, level: float) -> int:
    """Return on which side of 0 the interval lies, 0 if it holds 0 or if there is none."""
    if not free:
        return 0
    width = student_t(level, free) * error
    return 1 if centre - width > 0 else -1 if centre + width < 0 else 0


def spread_of(blocks: Sequence[Block]) -> Spread:
    """Return the spread of all pairs of sides in these blocks, as in the analysis of variance of
    sides by repeats: in each block (sides - 1) (repeats - 1) degrees of freedom.
    """
    squares, weights, free = 0.0, 0.0, 0.0
    middles: dict[Any, list[float]] = {}
    for block in blocks:
        for left, right in combinations(sorted(block.cells, key=repr), 2):
            pairs = block.pairs(left, right)
            middles.setdefault((left, right), []).append(median(pairs))
            squares += _squares(pairs)
            weights += len(pairs) - 1
            free += (len(pairs) - 1) * 2 / len(block.cells)
    apart = sorted(
        _deviation(values) for values in middles.values() if len(values) >= OVER_SETTINGS
    )
    between = apart[len(apart) // 2] if apart else 0.0
    return Spread(math.sqrt(squares / weights) if weights else math.nan, free, between)


def _deviation(values: Sequence[float]) -> float:
    return math.sqrt(_squares(values) / (len(values) - 1))


def _spread(
    groups: Sequence[Sequence[float]], overall: Spread, noise: float
) -> tuple[float, float]:
    """Return the standard deviation of one pair's difference and its degrees of freedom; 0 of these
    if no setting was repeated.

    It is that of all pairs of sides, or that of these two sides alone where this is larger: one
    steady pair proves nothing, and one unsteady side widens its own intervals.
    """
    own_free = sum(len(pairs) - 1 for pairs in groups)
    if not own_free:
        return math.nan, 0.0
    own = math.sqrt(sum(map(_squares, groups)) / own_free)
    if own > overall.deviation:
        return max(own, noise), float(own_free)
    return max(overall.deviation, noise), max(overall.free, float(own_free))


def _least_spread(
    overall: Spread, groups: Sequence[Sequence[float]], spread: float, free: float
) -> float:
    """Return the least spread that is assumed between settings: the noise of their medians; and for
    few settings, which may agree by chance, three quarters of the spread of other pairs of sides.
    """
    noise = spread * math.sqrt(fmean(1 / len(pairs) for pairs in groups)) if free else 0.0
    return max(noise, LEAST * overall.between) if len(groups) <= FEW_SETTINGS else noise


def _squares(values: Sequence[float]) -> float:
    """Return the sum of squares around the mean; `statistics.variance` takes ten times as long."""
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values)


def unpaired(
    cells: Cells,
    side: Hashable,
    other: Hashable,
    steady: Sequence[Hashable],
    comparisons: float = 1.0,
    noise: float = 0.0,
) -> Pooled:
    """Return a side minus the other where repeats are no pairs, such as of accuracies, which differ
    by their seeds.

    Student's t with the spread of runs around the mean of their side, over all `steady` sides, or
    over these two if it is larger there: what hardly learns says nothing of how the others vary.
    """
    left, right = [*cells[side].values()], [*cells[other].values()]
    sides = {side, other} | ({*steady} if {side, other} <= {*steady} else set())
    own, own_free = _within([left, right])
    pooled, free = _within([[*cells[name].values()] for name in sides])
    spread = own if own > pooled else pooled
    free = own_free if own > pooled else free
    middle, centre = median(left) - median(right), fmean(left) - fmean(right)
    if not free:
        return Pooled(middle, None, None, 1, int(middle > 0), 1, 1, 0, math.nan, 0.0)
    spread = max(spread, noise)
    error = spread * math.sqrt(1 / len(left) + 1 / len(right))
    verdict = _side_of_zero(centre, error, free, 1 - (1 - VERDICT_LEVEL) / comparisons)
    width, n = student_t(LEVEL, free) * error, min(len(left), len(right))
    low, high = min(centre - width, middle), max(centre + width, middle)
    return Pooled(middle, low, high, 1, int(middle > 0), n, n, verdict, spread * math.sqrt(2), free)


def _within(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the standard deviation of values around the mean of their group, and its degrees of
    freedom.
    """
    free = sum(len(group) - 1 for group in groups)
    squares = sum(map(_squares, groups))
    return (math.sqrt(squares / free), float(free)) if free else (0.0, 0.0)


@dataclass(frozen=True)
class Turn:
    """The place where a lead changes sides: up to size `at` a side minus the other is as in
    `below`, beyond it as in `above`.
    """

    at: float
    below: Pooled
    above: Pooled


def turn(
    blocks: Sequence[Block],
    side: Hashable,
    other: Hashable,
    comparisons: float = 1.0,
    size: Callable[[Block], float] | None = None,
) -> Turn | None:
    """Return where along `size` one side leads significantly below and the other above; None if
    nowhere.

    Of all splits between two sizes the one at which the less sure half is surest. Each half is
    judged by the spread of settings around the means of the halves from five settings on, else by
    that of pairs. Chance makes a half sure in 4 of 100 cases, and both, on opposite sides, in less
    than one of a thousand for each split.
    """
    at = size or (lambda block: block.size)
    both = sorted(shared(blocks, side, other), key=at)
    sizes = sorted({at(block) for block in both})
    best: tuple[float, Turn] | None = None
    for split in sizes[:-1]:
        halves = [
            [block for block in both if (at(block) <= split) is below] for below in (True, False)
        ]
        middles = [[median(block.pairs(side, other)) for block in half] for half in halves]
        means = [fmean(half) for half in middles]
        if means[0] * means[1] >= 0:
            continue
        free, errors = _errors_of_halves(halves, middles, side, other)
        if not free:
            continue
        level = 1 - (1 - VERDICT_LEVEL) / comparisons
        signs = [
            _side_of_zero(mean, error, free, level)
            for mean, error in zip(means, errors, strict=True)
        ]
        if signs[0] * signs[1] < 0:
            surest = min(abs(mean) / error for mean, error in zip(means, errors, strict=True))
            if best is None or surest > best[0]:
                below, above = (compare(half, side, other, comparisons) for half in halves)
                best = surest, Turn(split, below, above)
    return best[1] if best else None


def _errors_of_halves(
    halves: Sequence[Sequence[Block]],
    middles: Sequence[Sequence[float]],
    side: Hashable,
    other: Hashable,
) -> tuple[float, list[float]]:
    """Return the degrees of freedom and the standard error of each half's mean."""
    count = sum(map(len, halves))
    if count >= OVER_SETTINGS + 2:
        means = [fmean(half) for half in middles]
        squares = sum(
            (value - mean) ** 2 for half, mean in zip(middles, means, strict=True) for value in half
        )
        spread = max(math.sqrt(squares / (count - 2)), NOISE)
        return count - 2.0, [spread / math.sqrt(len(half)) for half in middles]
    both = [block for half in halves for block in half]
    spread, free = _spread([block.pairs(side, other) for block in both], spread_of(both), NOISE)
    weights = [
        sum(1 / len(block.pairs(side, other)) for block in half) / len(half) ** 2 for half in halves
    ]
    return free, [spread * math.sqrt(weight) for weight in weights]


def ranked(
    blocks: Sequence[Block], sides: Sequence[Side], fair: Callable[[Side, Side], bool] | None = None
) -> list[Side]:
    """Return the sides, the best first: by how many others they lead over all settings, then
    by how much. `fair` says which pairs may be compared.
    """
    ahead: dict[Side, list[float]] = {side: [] for side in sides}
    for left, right in combinations(sides, 2):
        both = shared(blocks, left, right) if fair is None or fair(left, right) else []
        if both:
            middle = fmean(median(block.pairs(left, right)) for block in both)
            ahead[left].append(middle)
            ahead[right].append(-middle)

    def place(side: Side) -> tuple[int, float]:
        return sum(value > 0 for value in ahead[side]), fmean(ahead[side]) if ahead[
            side
        ] else -math.inf

    return sorted(sides, key=place, reverse=True)


def more_pairs(found: Pooled, comparisons: float = 1.0) -> int | None:
    """Return how many more repeats of each setting would probably make the difference significant;
    None if nobody can say, or if more than a hundred.

    Below three settings the power is that of the t test; else that of the normal one, where repeats
    reduce the noise of runs, but not the difference between settings.
    """
    if found.pairs < 2 or not found.free:
        return max(1, FEWEST - found.n)
    # What was seen of the undecided is too large as often as too small: half an error less asks for
    # enough more often.
    deviation = found.spread / math.sqrt(found.n) if math.isnan(found.between) else found.between
    effect = abs(found.middle) - deviation / math.sqrt(found.settings) / 2
    if effect <= 0:
        return None
    if found.settings >= OVER_SETTINGS:
        differs = max(0.0, found.between**2 - found.spread**2 / found.n)
        level = 1 - (1 - VERDICT_LEVEL) / comparisons
        needed = student_t(level, found.settings - 1.0) + float(special.ndtri(POWER))
        for repeats in range(1, MOST_REPEATS + 1):
            error = math.sqrt((differs + found.spread**2 / (found.n + repeats)) / found.settings)
            if effect > needed * error:
                return repeats
        return None
    seen = Comparison(math.exp(effect), None, None, found.pairs, spread=found.spread)
    more = more_repeats(seen, comparisons, max(0.0, found.free - found.pairs + 1))
    if more is None:
        return None
    each = math.ceil(more / found.settings)
    return each if each <= MOST_REPEATS else None
