"""What our runs say to claims of sources: table `verdicts`.

`claims.py` finds the runs of each claim; `significance.py` decides, and runs are never asked for
more than they can say. Each group of runs of a claim is one comparison: with another group, or with
the published value. Spreads are pooled over the comparisons of all claims on the same quantity, or
on one that varies as it does.

A claim may have several comparisons, and many claims are judged at once. Two numbers keep chance
from deciding (Bonferroni): a verdict that needs all comparisons of a claim is as strict as for one
of `claims` claims; one for which a single comparison is enough, as for one of all their
`comparisons`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from ddlbench.analysis import refusals, together
from ddlbench.analysis.claims import ORDERINGS, UNITS, Asked, Claim, ask, quantities, read
from ddlbench.analysis.intervals import LEVEL, NOISE, VERDICT_LEVEL, over_repeats
from ddlbench.analysis.significance import (
    CANNOT_TELL,
    FASTER,
    FEWEST,
    MANY,
    POWER,
    SLOWER,
    Comparison,
    Pool,
    more_repeats,
    pool,
    pooled_error,
    ratio,
)
from ddlbench.core.columns import as_cells
from ddlbench.core.files import aside
from ddlbench.core.formatting import around

SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
NOT_TESTABLE = "not testable here"
# "About" a value is within so much of it in the quantity's own unit, or within a share of it: 10 %
# cannot tell a top-1 of 77 from one of 74. Bytes are counted; of times and rates sources print two
# digits, mostly of a single run.
WITHIN = {
    "top1": 1.0,
    "efficiency": 0.05,
    "communication-share": 5.0,
    "computation-share": 5.0,
    "busy-cores": 0.5,
}
SHARE = dict.fromkeys(("memory", "model-state", "network"), 0.05)
SHARE |= dict.fromkeys(("throughput", "speed-up", "runtime", "cost", "restart"), 0.1)
Outcome = tuple[str, Comparison]  # the verdict of one comparison of a claim, and the comparison
COLUMNS = (
    *(
        "id",
        "source",
        "place",
        "claim",
        "verdict",
        "why",
        "published",
        "unit",
        "measured",
        "low",
        "high",
    ),
    *("n", "more_repeats", "hardware", "runs"),
)


def verdicts(claims: Sequence[Claim], runs: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return one row per claim (COLUMNS), from tables `runs` and `kernels` of `collect`."""
    measured, share, rows = quantities(runs, kernels), 1.0, []
    asked = [ask(claim, measured) for claim in claims]
    pools = _pools(asked)
    while True:
        # Benjamini and Hochberg: of all claims that can be judged, as many are decided as hold at
        # their share of the level. Like `control_false_discoveries`, for verdicts that are no
        # single test.
        rows = [_row(one, 1 / share, pools.get(one.pooled_with)) for one in asked]
        judged = [row for row in rows if row["verdict"] != NOT_TESTABLE and row["n"] >= FEWEST]
        decided = max(1, sum(row["verdict"] != UNDECIDED for row in judged))
        if decided >= share * len(judged):
            return pd.DataFrame(rows, columns=list(COLUMNS))
        share = decided / len(judged)


def write(path: Path, runs: Path, kernels: Path, out: Path) -> pd.DataFrame:
    """Write table `verdicts` as csv, from the file of claims and two tables (parquet), and return
    it.
    """
    claims, of_runs, of_kernels = read(path), pd.read_parquet(runs), pd.read_parquet(kernels)

    def step(some: Sequence[str], _: refusals.Spoilers[str]) -> pd.DataFrame:
        return verdicts(
            claims, *(table[table["run"].isin(some)] for table in (of_runs, of_kernels))
        )

    table, spoilers = refusals.sparing([str(run) for run in of_runs["run"]], step)
    for run, error in spoilers.items():
        print(
            f"{run} is refused and in no verdict: {refusals.not_understood(Path(run), error).what}"
        )
    with aside(out) as hidden:
        as_cells(table).to_csv(hidden, index=False)
    return table


def lines(table: pd.DataFrame) -> list[str]:
    """Format table `verdicts` for people: what was decided, and how much was not."""
    sentences = []
    for verdict in (CONTRADICTED, SUPPORTED, UNDECIDED):
        for row in table[table["verdict"] == verdict].to_dict("records"):
            measured = (
                f"{around(row['measured'], row['low'], row['high'])}, n = {row['n']:.0f}, on"
                f" {row['hardware']}"
            )
            sentences.append(
                f"{verdict}: {row['claim']} ({row['source']}, {row['place']}): {measured}"
            )
    counts = [
        f"{(table['verdict'] == v).sum()} {v}"
        for v in (CONTRADICTED, SUPPORTED, UNDECIDED, NOT_TESTABLE)
    ]
    return [*sentences, f"{len(table)} claims: {', '.join(counts)}"]


def _pools(asked: Sequence[Asked]) -> dict[tuple[str, bool], Pool | None]:
    """Pool the spreads of the comparisons of all claims on a quantity, each comparison once.

    Each side of a comparison also counts as a comparison with a published value: so the few claims
    on one side, such as on a time or an accuracy, are judged with the spreads of all runs that any
    claim compares.
    """
    comparisons: dict[tuple[str, bool], dict[tuple[str, ...], Comparison]] = {}
    for one in asked:
        if one.claim.quantity == "variation":  # it asks for the spread itself
            continue
        for left, right in one.sides:
            for first, second in ((left, right), (left, None), (right, None)):
                if first is None:
                    continue
                runs = tuple(sorted({*first["run"], *(() if second is None else second["run"])}))
                of_quantity = comparisons.setdefault((one.pooled_with[0], second is not None), {})
                if runs not in of_quantity:
                    comparison = _compared(one.claim, first, second, one.column)
                    scale = _scale(one, first, second)
                    of_quantity[runs] = replace(comparison, spread=comparison.spread / scale)
    return {kind: pool([*of_quantity.values()]) for kind, of_quantity in comparisons.items()}


def _scale(asked: Asked, left: pd.DataFrame, right: pd.DataFrame | None) -> float:
    """Return the spread of a comparison's logarithm where each side varies by one unit of what is
    pooled.

    Accuracies vary by points, whatever their level; all else by shares.
    """
    if asked.claim.quantity != "top1":
        return 1.0
    sides = [left] if right is None else [left, right]
    return math.hypot(*(1 / float(side[asked.column].median()) for side in sides))


def _compared(
    claim: Claim, left: pd.DataFrame, right: pd.DataFrame | None, column: str
) -> Comparison:
    """Return the ratio of the left side to the right one, or to the published value (to 1 without
    one).
    """
    left_values = together.by_repeat(left, column)
    right_values = (
        dict.fromkeys(left_values, claim.value or 1.0)
        if right is None
        else together.by_repeat(right, column)
    )
    return ratio(left_values, right_values)


def _row(asked: Asked, claims: float, pooled: Pool | None) -> dict[str, Any]:
    """Return a claim's row; its verdict holds as if it were one of so many `claims`.

    `pooled` is the spread of the comparisons of all claims on its quantity.
    """
    claim, sides = asked.claim, asked.sides
    row: dict[str, Any] = dict.fromkeys(COLUMNS) | {
        name: getattr(claim, name) for name in COLUMNS[:4]
    }
    row |= {"verdict": NOT_TESTABLE, "why": asked.why, "published": claim.value}
    if claim.quantity:
        row["unit"] = (
            "1" if claim.right else UNITS.get(claim.quantity, "1")
        )  # two sides are compared by their ratio
    if not sides:
        return row
    # Repeats that both sides have, or the only one.
    pairs = [
        set(left["repeat"]) & set((left if right is None else right)["repeat"])
        for left, right in sides
    ]
    comparisons = max(1, sum(len(common) > 1 for common in pairs)) * claims
    outcomes = _outcomes(asked, comparisons, claims, pooled)
    # All comparisons must agree: one that contradicts the claim contradicts it, one that cannot
    # tell leaves it open.
    order = [CONTRADICTED, UNDECIDED, SUPPORTED]
    if claim.relation in ("factor-up-to", "ordering-some"):
        order.reverse()  # one comparison that reaches the factor, or has the order, is enough
    # Where equal, the one with most repeats.
    verdict, deciding = min(outcomes, key=lambda outcome: (order.index(outcome[0]), -outcome[1].n))
    why = (
        f"{len(outcomes)} comparisons; the figures are those of the deciding one"
        if len(outcomes) > 1
        else ""
    )
    if len(outcomes) > 1 and order[0] == SUPPORTED:
        why += f". One is enough, so each is tested {len(outcomes)} times as strictly (Bonferroni)"
        scale = _scale(asked, *sides[[outcome[1] for outcome in outcomes].index(deciding)])
        why += _power(
            deciding, comparisons, pooled and replace(pooled, spread=pooled.spread * scale)
        )
    alone = f"a verdict needs {FEWEST} repeats of both sides" * (
        deciding.n < FEWEST and verdict == UNDECIDED
    )
    why = "; ".join(filter(None, [claim.why, why, alone]))
    row |= {
        "verdict": verdict,
        "why": why,
        "measured": deciding.middle,
        "low": deciding.low,
        "high": deciding.high,
    }
    row |= {
        "n": deciding.n,
        "more_repeats": (deciding.more or None) if verdict == UNDECIDED else None,
    }
    sides_shown = pd.concat([side for pair in sides for side in pair if side is not None])
    row["runs"] = " ".join(sorted({*sides_shown["run"]}))
    return row | {
        "hardware": ", ".join(
            sorted({*(sides_shown["machine"] + " (" + sides_shown["device"] + ")")})
        )
    }


def _outcomes(
    asked: Asked, comparisons: float, claims: float, pooled: Pool | None
) -> list[Outcome]:
    """Return the verdict of each comparison of a claim, as one of so many `claims` with so many
    `comparisons` in all.
    """
    claim, column = asked.claim, asked.column
    repeated = [left for left, _ in asked.sides if len(left) >= FEWEST]
    if claim.quantity == "variation" and len(repeated) >= MANY:
        return [_usual_variation(claim, repeated, column, claims)]
    outcomes = []
    for left, right in asked.sides:
        if pooled and claim.quantity != "variation":
            scaled = replace(pooled, spread=pooled.spread * _scale(asked, left, right))
            outcomes.append(_with_others(claim, left, right, column, comparisons, claims, scaled))
        elif right is None:
            outcomes.append(_against(claim, left, column, comparisons, claims))
        else:
            outcomes.append(_between(claim, left, right, column, comparisons, claims))
    return outcomes


def _with_others(
    claim: Claim,
    left: pd.DataFrame,
    right: pd.DataFrame | None,
    column: str,
    comparisons: float,
    claims: float,
    pooled: Pool,
) -> Outcome:
    """Return the verdict of a comparison by its own spread and that of the others, as in
    `significance.control_false_discoveries`.

    `comparisons` counts those of the claim that have repeats, times `claims`: so often may chance
    decide where one comparison is enough.
    """
    comparison = _compared(claim, left, right, column)
    if comparison.n < FEWEST:
        return UNDECIDED, _in_units(comparison, claim, right)
    freedom, error = pooled_error(comparison, pooled)

    def interval_among(count: float) -> tuple[float, float]:
        """Return the 95 % interval, widened so far that it holds where any one of `count` such
        intervals would decide.
        """
        width = float(special.stdtrit(freedom, 1 - (1 - LEVEL) / 2 / count)) * error
        return math.exp(comparison.mean - width), math.exp(comparison.mean + width)

    def verdict_among(count: float) -> str:
        """Return the verdict as strictly as for one of `count`."""
        p = 2 * float(special.stdtr(freedom, -abs(comparison.mean) / error))
        if p > (1 - VERDICT_LEVEL) / count:
            return CANNOT_TELL
        return FASTER if comparison.mean > 0 else SLOWER

    if claim.relation in ORDERINGS or claim.relation in ("above", "below"):
        wanted, against = (SLOWER, FASTER) if claim.relation == "below" else (FASTER, SLOWER)
        enough = wanted if claim.relation == "ordering-some" else against
        decided = verdict_among(comparisons if verdict_among(claims) == enough else claims)
        verdict = {wanted: SUPPORTED, against: CONTRADICTED}.get(decided, UNDECIDED)
    else:
        least, most, enough = _allowed(claim, right, column)
        verdict = _inside(*interval_among(1), least, most)
        count = comparisons if verdict == enough else claims
        verdict = verdict if _inside(*interval_among(count), least, most) == verdict else UNDECIDED
    low, high = interval_among(1)
    more = more_repeats(
        comparison, claims, freedom - comparison.n + 1, error * math.sqrt(comparison.n)
    )
    return verdict, _in_units(replace(comparison, low=low, high=high, more=more), claim, right)


def _allowed(claim: Claim, right: pd.DataFrame | None, column: str) -> tuple[float, float, str]:
    """Return the bounds between which the ratio must lie, and the verdict for which one comparison
    is enough.
    """
    assert claim.value is not None  # `read` saw to that
    unit_tolerance = WITHIN.get(claim.quantity)
    if right is None:  # over the published value
        tolerance = (
            claim.value * SHARE.get(claim.quantity, 0.0)
            if unit_tolerance is None
            else unit_tolerance
        )
        return 1 - tolerance / claim.value, 1 + tolerance / claim.value, CONTRADICTED
    # A ratio of 1 must not support the claim of a small gain.
    tolerance = min(
        claim.value * SHARE.get(claim.quantity, 0.0), abs(claim.value - 1) / 2 or math.inf
    )
    if unit_tolerance is not None:  # in the quantity's own unit, of the right side's median
        tolerance = unit_tolerance / float(
            np.median(list(together.by_repeat(right, column).values()))
        )
    if claim.relation == "factor-up-to":
        return claim.value - tolerance, math.inf, SUPPORTED
    return claim.value - tolerance, claim.value + tolerance, CONTRADICTED


def _in_units(comparison: Comparison, claim: Claim, right: pd.DataFrame | None) -> Comparison:
    """Return a comparison as it is shown: one side in the quantity's unit, two sides as their
    ratio.
    """
    if right is not None:
        return comparison
    unit = claim.value or 1.0
    low = None if comparison.low is None else comparison.low * unit
    high = None if comparison.high is None else comparison.high * unit
    return replace(comparison, middle=comparison.middle * unit, low=low, high=high)


def _usual_variation(
    claim: Claim, groups: Sequence[pd.DataFrame], column: str, claims: float
) -> Outcome:
    """Return the verdict on the median of the spreads of many groups of repeats: what a source says
    "in general".

    Each group's standard deviation over mean, freed of the bias that few repeats have; the interval
    is that of the median, whatever the distribution.
    """
    assert claim.value is not None  # `read` saw to that
    spreads = []
    for runs in groups:
        values = runs[column].astype(float).to_numpy()
        free = len(values) - 1
        spread = float(np.std(values, ddof=1) / np.mean(values))
        spreads.append(max(spread, NOISE) / math.sqrt(float(special.chdtri(free, 0.5)) / free))
    seen = over_repeats(spreads)
    decided = ratio(
        dict(enumerate(spreads)),
        dict.fromkeys(range(len(spreads)), claim.value),
        comparisons=claims,
    ).verdict
    verdict = {SLOWER: SUPPORTED, FASTER: CONTRADICTED}.get(decided, UNDECIDED)
    return verdict, Comparison(seen.middle, seen.low, seen.high, seen.n)


def _power(comparison: Comparison, comparisons: float, pooled: Pool | None) -> str:
    """Describe the power of a verdict: how large a factor it finds in 80 of 100 cases, and how
    large a factor a single comparison would find.
    """
    if comparison.n < FEWEST or not comparison.spread > 0:
        return ""
    freedom, error = comparison.n - 1.0, comparison.spread / math.sqrt(comparison.n)
    if pooled:
        freedom, error = pooled_error(comparison, pooled)
    factors = [
        float(special.stdtrit(freedom, 1 - (1 - VERDICT_LEVEL) / 2 / n) + special.ndtri(POWER))
        for n in (comparisons, 1)
    ]
    found = [math.exp(each * error) for each in factors]
    return (
        f"; power at n = {comparison.n}: 80 % for a factor of {found[0]:.3g} beyond that ({found[1]:.3g}"
        " for one comparison alone)"
    )


def _against(
    claim: Claim, runs: pd.DataFrame, column: str, comparisons: float, claims: float
) -> Outcome:
    """Compare one side with the published value, by its own spread alone; `comparisons` counts the
    groups of runs of the claim that have repeats, times `claims`.
    """
    assert claim.value is not None  # `read` saw to that
    values = runs[column].astype(float).tolist()
    if claim.quantity == "variation":
        return _variation(claim.value, runs, values, comparisons, claims)
    by_repeat = together.by_repeat(runs, column)
    claimed = dict.fromkeys(by_repeat, claim.value)
    interval, comparison = over_repeats(values), ratio(by_repeat, claimed, comparisons=claims)
    if claim.relation == "about":
        tolerance = WITHIN.get(claim.quantity, claim.value * SHARE.get(claim.quantity, 0.0))
        verdict = factor(
            interval.low,
            interval.high,
            interval.n,
            claim.value,
            comparisons,
            False,
            tolerance,
            claims,
        )
    else:
        wanted, against = (FASTER, SLOWER) if claim.relation == "above" else (SLOWER, FASTER)
        strict = ratio(by_repeat, claimed, comparisons=comparisons).verdict
        verdict = (
            SUPPORTED
            if comparison.verdict == wanted
            else CONTRADICTED
            if strict == against
            else UNDECIDED
        )
    more = comparison.more if interval.n > 1 else None
    return verdict, Comparison(interval.middle, interval.low, interval.high, interval.n, more=more)


def _between(
    claim: Claim,
    left: pd.DataFrame,
    right: pd.DataFrame,
    column: str,
    comparisons: float,
    claims: float,
) -> Outcome:
    """Compare the left side with the right one; `comparisons` counts those of the claim that have
    repeats, and so a verdict, times `claims`.
    """
    sides = [together.by_repeat(side, column) for side in (left, right)]
    comparison = ratio(sides[0], sides[1], comparisons=claims)
    if claim.relation in ORDERINGS:
        # Where one comparison is enough (for the claim or against it), chance may decide in each
        # of them.
        enough = FASTER if claim.relation == "ordering-some" else SLOWER
        decided = comparison.verdict
        if decided == enough:
            decided = ratio(sides[0], sides[1], comparisons=comparisons).verdict
        verdict = {FASTER: SUPPORTED, SLOWER: CONTRADICTED}.get(decided, UNDECIDED)
    else:
        assert claim.value is not None
        up_to, tolerance = claim.relation == "factor-up-to", WITHIN.get(claim.quantity)
        # Where so much is allowed in the quantity's own unit, the ratio is one of the right side's
        # median.
        unit = 1.0 if tolerance is None else float(np.median(list(sides[1].values())))
        low, high = (
            None if end is None else end * unit for end in (comparison.low, comparison.high)
        )
        # A ratio of 1 must not support the claim of a small gain.
        share = min(
            claim.value * SHARE.get(claim.quantity, 0.0), abs(claim.value - 1) / 2 or math.inf
        )
        verdict = factor(
            low,
            high,
            comparison.n,
            claim.value * unit,
            comparisons,
            up_to,
            share if tolerance is None else tolerance,
            claims,
        )
    return verdict, comparison


def factor(
    low: float | None,
    high: float | None,
    n: int,
    value: float,
    comparisons: float,
    up_to: bool,
    tolerance: float,
    claims: float = 1,
) -> str:
    """Judge whether the 95 % confidence interval of a ratio of n pairs is within `tolerance` of
    `value`; with `up_to`, whether it reaches `value` (or `tolerance` less).

    All of the `comparisons` must fit a value; to reach one, a single comparison is enough. So one
    alone decides only where a wider interval says the same (Bonferroni, by Student's t): chance may
    decide in each of them. What needs all of them is as strict as for one of `claims`.
    """
    bounds = value - tolerance, math.inf if up_to else value + tolerance
    if low is None or high is None or n < FEWEST:
        return UNDECIDED
    verdict = _inside(low, high, *bounds)
    count = comparisons if verdict == (SUPPORTED if up_to else CONTRADICTED) else claims
    if count == 1 or verdict == UNDECIDED:
        return verdict
    single, several = (
        float(special.stdtrit(n - 1, 1 - (1 - LEVEL) / 2 / tests)) for tests in (1, count)
    )
    middle, width = math.sqrt(low * high), math.sqrt(high / low) ** (several / single)
    return verdict if _inside(middle / width, middle * width, *bounds) == verdict else UNDECIDED


def _inside(low: float, high: float, least: float, most: float) -> str:
    """Return the verdict on an interval that should lie between `least` and `most`: supported if it
    does, contradicted if it lies outside, undecided if neither.
    """
    if least <= low and high <= most:
        return SUPPORTED
    return CONTRADICTED if high < least or low > most else UNDECIDED


def _variation(
    limit: float, runs: pd.DataFrame, values: list[float], comparisons: float, claims: float
) -> Outcome:
    """Judge the standard deviation over mean of repeats, with the confidence interval of a standard
    deviation of normal values.
    """
    n = len(values)
    if n < FEWEST:
        return UNDECIDED, Comparison(math.nan, None, None, n)
    spread = float(np.std(values, ddof=1) / np.mean(values))

    def bounds(level: float) -> list[float]:
        tails = (0.5 - level / 2, 0.5 + level / 2)
        return [spread * math.sqrt((n - 1) / float(special.chdtri(n - 1, p))) for p in tails]

    below = bounds(1 - (1 - VERDICT_LEVEL) / claims)[1] < limit
    above = (
        bounds(1 - (1 - VERDICT_LEVEL) / comparisons)[0] > limit
    )  # one group of many contradicts: `factor` says why
    low, high = bounds(LEVEL)
    verdict = SUPPORTED if below else CONTRADICTED if above else UNDECIDED
    return verdict, Comparison(spread, low, high, n)
