"""What our runs say to claims of sources: table `verdicts`.

`claims.py` finds the runs of each claim; `significance.py` decides, and runs are never asked for more
than they can say. Each group of runs of a claim, with the one that it is compared with, is a cell.
A cell's spread is that of all cells of claims on the same quantity, or on one that varies as it does.
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
    Pool,
    Ratio,
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
Decided = tuple[
    str, Ratio
]  # the verdict of runs in one of the cells that a claim is about, and what it rests on
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
        # their share of the level. As `at_once`, for verdicts that are no single test.
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
    """Pool the spread of the cells of all claims on a quantity, each cell once.

    The sides of comparisons are cells without one, too: so few claims on one side, such as on a time
    or an accuracy, are judged with the spreads of all runs that any claim compares.
    """
    cells: dict[tuple[str, bool], dict[tuple[str, ...], Ratio]] = {}
    for one in asked:
        if one.claim.quantity == "variation":  # it asks for the spread itself
            continue
        for ours, theirs in one.sides:
            for left, right in ((ours, theirs), (ours, None), (theirs, None)):
                if left is None:
                    continue
                runs = tuple(sorted({*left["run"], *(() if right is None else right["run"])}))
                of_kind = cells.setdefault((one.pooled_with[0], right is not None), {})
                if runs not in of_kind:
                    cell = _compared(one.claim, left, right, one.column)
                    scale = _scale(one, left, right)
                    of_kind[runs] = replace(cell, spread=cell.spread / scale)
    return {kind: pool([*of_kind.values()]) for kind, of_kind in cells.items()}


def _scale(asked: Asked, ours: pd.DataFrame, theirs: pd.DataFrame | None) -> float:
    """Return the spread of a cell's logarithm where each side varies by one unit of what is pooled.

    Accuracies vary by points, whatever their level; all else by shares.
    """
    if asked.claim.quantity != "top1":
        return 1.0
    sides = [ours] if theirs is None else [ours, theirs]
    return math.hypot(*(1 / float(side[asked.column].median()) for side in sides))


def _compared(claim: Claim, ours: pd.DataFrame, theirs: pd.DataFrame | None, column: str) -> Ratio:
    """Return the ratio of a cell: over its other side, or over the published value (over 1 without
    one).
    """
    left = together.by_repeat(ours, column)
    right = (
        dict.fromkeys(left, claim.value or 1.0)
        if theirs is None
        else together.by_repeat(theirs, column)
    )
    return ratio(left, right)


def _row(asked: Asked, among: float, of_all: Pool | None) -> dict[str, Any]:
    """Return a claim's row; each verdict holds as if it were one of `among`.

    `of_all`: the pooled spread of the cells of all claims on its quantity.
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
        set(ours["repeat"]) & set((ours if theirs is None else theirs)["repeat"])
        for ours, theirs in sides
    ]
    tries = max(1, sum(len(common) > 1 for common in pairs)) * among
    cells = _decided(asked, tries, among, of_all)
    # All cells must agree: one that contradicts the claim contradicts it, one that cannot tell
    # leaves it open.
    order = [CONTRADICTED, UNDECIDED, SUPPORTED]
    if claim.relation in ("factor-up-to", "ordering-some"):
        order.reverse()  # one cell that reaches the factor, or has the order, is enough
    # Where equal, the one with most repeats.
    verdict, rests = min(cells, key=lambda cell: (order.index(cell[0]), -cell[1].n))
    why = (
        f"{len(cells)} comparisons; the figures are those of the deciding one"
        if len(cells) > 1
        else ""
    )
    if len(cells) > 1 and order[0] == SUPPORTED:
        why += f". One is enough, so each is tested {len(cells)} times as strictly (Bonferroni)"
        scale = _scale(asked, *sides[[cell[1] for cell in cells].index(rests)])
        why += _power(rests, tries, of_all and replace(of_all, spread=of_all.spread * scale))
    alone = f"a verdict needs {FEWEST} repeats of both sides" * (
        rests.n < FEWEST and verdict == UNDECIDED
    )
    why = "; ".join(filter(None, [claim.why, why, alone]))
    row |= {
        "verdict": verdict,
        "why": why,
        "measured": rests.middle,
        "low": rests.low,
        "high": rests.high,
    }
    row |= {"n": rests.n, "more_repeats": (rests.more or None) if verdict == UNDECIDED else None}
    sides_shown = pd.concat([side for pair in sides for side in pair if side is not None])
    row["runs"] = " ".join(sorted({*sides_shown["run"]}))
    return row | {
        "hardware": ", ".join(
            sorted({*(sides_shown["machine"] + " (" + sides_shown["device"] + ")")})
        )
    }


def _decided(asked: Asked, tries: float, among: float, of_all: Pool | None) -> list[Decided]:
    """Return the verdict of each cell."""
    claim, column = asked.claim, asked.column
    repeated = [ours for ours, _ in asked.sides if len(ours) >= FEWEST]
    if claim.quantity == "variation" and len(repeated) >= MANY:
        return [_usual_variation(claim, repeated, column, among)]
    cells = []
    for ours, theirs in asked.sides:
        if of_all and claim.quantity != "variation":
            of_cell = replace(of_all, spread=of_all.spread * _scale(asked, ours, theirs))
            cells.append(_with_others(claim, ours, theirs, column, tries, among, of_cell))
        elif theirs is None:
            cells.append(_against(claim, ours, column, tries, among))
        else:
            cells.append(_between(claim, ours, theirs, column, tries, among))
    return cells


def _with_others(
    claim: Claim,
    ours: pd.DataFrame,
    theirs: pd.DataFrame | None,
    column: str,
    tries: float,
    among: float,
    of_all: Pool,
) -> Decided:
    """Return the verdict of a cell by its own spread and that of the other cells, as in
    `significance.at_once`.

    `tries` is how many cells of the claim have repeats, times `among`: chance has as many tries
    where one cell is enough.
    """
    cell = _compared(claim, ours, theirs, column)
    if cell.n < FEWEST:
        return UNDECIDED, _in_units(cell, claim, theirs)
    freedom, error = pooled_error(cell, of_all)

    def within(count: float) -> tuple[float, float]:
        """Return the 95 % interval that is so much surer that any one of `count` would decide."""
        width = float(special.stdtrit(freedom, 1 - (1 - LEVEL) / 2 / count)) * error
        return math.exp(cell.mean - width), math.exp(cell.mean + width)

    def surely(count: float) -> str:
        """Return the verdict as if it were one of `count`."""
        p = 2 * float(special.stdtr(freedom, -abs(cell.mean) / error))
        if p > (1 - VERDICT_LEVEL) / count:
            return CANNOT_TELL
        return FASTER if cell.mean > 0 else SLOWER

    if claim.relation in ORDERINGS or claim.relation in ("above", "below"):
        wanted, against = (SLOWER, FASTER) if claim.relation == "below" else (FASTER, SLOWER)
        enough = wanted if claim.relation == "ordering-some" else against
        decided = surely(tries if surely(among) == enough else among)
        verdict = {wanted: SUPPORTED, against: CONTRADICTED}.get(decided, UNDECIDED)
    else:
        least, most, enough = _allowed(claim, theirs, column)
        verdict = _inside(*within(1), least, most)
        count = tries if verdict == enough else among
        verdict = verdict if _inside(*within(count), least, most) == verdict else UNDECIDED
    low, high = within(1)
    more = more_repeats(cell, among, freedom - cell.n + 1, error * math.sqrt(cell.n))
    return verdict, _in_units(replace(cell, low=low, high=high, more=more), claim, theirs)


def _allowed(claim: Claim, theirs: pd.DataFrame | None, column: str) -> tuple[float, float, str]:
    """Return the ends between which a cell's ratio must lie, and the verdict for which one cell is
    enough.
    """
    assert claim.value is not None  # `read` saw to that
    unit_off = WITHIN.get(claim.quantity)
    if theirs is None:  # over the published value
        off = claim.value * SHARE.get(claim.quantity, 0.0) if unit_off is None else unit_off
        return 1 - off / claim.value, 1 + off / claim.value, CONTRADICTED
    # No gain does not support a small one.
    off = min(claim.value * SHARE.get(claim.quantity, 0.0), abs(claim.value - 1) / 2 or math.inf)
    if unit_off is not None:  # in the quantity's own unit, of the right side's median
        off = unit_off / float(np.median(list(together.by_repeat(theirs, column).values())))
    if claim.relation == "factor-up-to":
        return claim.value - off, math.inf, SUPPORTED
    return claim.value - off, claim.value + off, CONTRADICTED


def _in_units(cell: Ratio, claim: Claim, theirs: pd.DataFrame | None) -> Ratio:
    """Return a cell as it is shown: one side in the quantity's unit, two sides as their ratio."""
    if theirs is not None:
        return cell
    unit = claim.value or 1.0
    low = None if cell.low is None else cell.low * unit
    high = None if cell.high is None else cell.high * unit
    return replace(cell, middle=cell.middle * unit, low=low, high=high)


def _usual_variation(
    claim: Claim, groups: Sequence[pd.DataFrame], column: str, among: float
) -> Decided:
    """Return the verdict on the middle of the spreads of many groups of repeats: what a source says
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
    surely = ratio(
        dict(enumerate(spreads)), dict.fromkeys(range(len(spreads)), claim.value), one_of=among
    ).verdict
    verdict = {SLOWER: SUPPORTED, FASTER: CONTRADICTED}.get(surely, UNDECIDED)
    return verdict, Ratio(seen.middle, seen.low, seen.high, seen.n)


def _power(cell: Ratio, tries: float, of_all: Pool | None) -> str:
    """Describe the power of a verdict: how large a factor it finds in 80 of 100 cases, beside a
    verdict on one cell.
    """
    if cell.n < FEWEST or not cell.spread > 0:
        return ""
    freedom, error = cell.n - 1.0, cell.spread / math.sqrt(cell.n)
    if of_all:
        freedom, error = pooled_error(cell, of_all)
    factors = [
        float(special.stdtrit(freedom, 1 - (1 - VERDICT_LEVEL) / 2 / n) + special.ndtri(POWER))
        for n in (tries, 1)
    ]
    found = [math.exp(each * error) for each in factors]
    return (
        f"; power at n = {cell.n}: 80 % for a factor of {found[0]:.3g} beyond that ({found[1]:.3g}"
        " for one comparison alone)"
    )


def _against(claim: Claim, runs: pd.DataFrame, column: str, tries: float, among: float) -> Decided:
    """Compare one side with the published value, by its own spread alone; `tries` is how many
    groups of runs of the claim have repeats, times `among`.
    """
    assert claim.value is not None  # `read` saw to that
    values = runs[column].astype(float).tolist()
    if claim.quantity == "variation":
        return _variation(claim.value, runs, values, tries, among)
    by_repeat = together.by_repeat(runs, column)
    claimed = dict.fromkeys(by_repeat, claim.value)
    interval, apart = over_repeats(values), ratio(by_repeat, claimed, one_of=among)
    if claim.relation == "about":
        off = WITHIN.get(claim.quantity, claim.value * SHARE.get(claim.quantity, 0.0))
        verdict = factor(
            interval.low, interval.high, interval.n, claim.value, tries, False, off, among
        )
    else:
        wanted, against = (FASTER, SLOWER) if claim.relation == "above" else (SLOWER, FASTER)
        surely = ratio(by_repeat, claimed, one_of=tries).verdict
        verdict = (
            SUPPORTED
            if apart.verdict == wanted
            else CONTRADICTED
            if surely == against
            else UNDECIDED
        )
    more = apart.more if interval.n > 1 else None
    return verdict, Ratio(interval.middle, interval.low, interval.high, interval.n, more=more)


def _between(
    claim: Claim, ours: pd.DataFrame, theirs: pd.DataFrame, column: str, tries: float, among: float
) -> Decided:
    """Compare the left side with the right one; `tries` is how many comparisons of the claim have
    repeats, and so a verdict, times `among`.
    """
    sides = [together.by_repeat(side, column) for side in (ours, theirs)]
    apart = ratio(sides[0], sides[1], one_of=among)
    if claim.relation in ORDERINGS:
        # Where one comparison is enough (for the claim or against it), chance has as many tries as
        # there are.
        enough = FASTER if claim.relation == "ordering-some" else SLOWER
        decided = apart.verdict
        if decided == enough:
            decided = ratio(sides[0], sides[1], one_of=tries).verdict
        verdict = {FASTER: SUPPORTED, SLOWER: CONTRADICTED}.get(decided, UNDECIDED)
    else:
        assert claim.value is not None
        most, off = claim.relation == "factor-up-to", WITHIN.get(claim.quantity)
        # Where so much is allowed in the quantity's own unit, the ratio is one of the right side's
        # median.
        unit = 1.0 if off is None else float(np.median(list(sides[1].values())))
        low, high = (None if end is None else end * unit for end in (apart.low, apart.high))
        # No gain does not support a small one.
        share = min(
            claim.value * SHARE.get(claim.quantity, 0.0), abs(claim.value - 1) / 2 or math.inf
        )
        verdict = factor(
            low,
            high,
            apart.n,
            claim.value * unit,
            tries,
            most,
            share if off is None else off,
            among,
        )
    return verdict, apart


def factor(
    low: float | None,
    high: float | None,
    n: int,
    value: float,
    tries: float,
    most: bool,
    off: float,
    among: float = 1,
) -> str:
    """Judge whether the 95 % confidence interval of a ratio of n pairs is within `off` of `value`,
    or reaches what was said to be the `most` (or `off` less).

    Each of `tries` such ratios must fit a value, one is enough for the most. So one alone decides
    only where a wider interval says the same (Bonferroni, by Student's t): chance has as many tries
    as there are ratios. What needs all of them holds as if it were one of `among`.
    """
    ends = value - off, math.inf if most else value + off
    if low is None or high is None or n < FEWEST:
        return UNDECIDED
    verdict = _inside(low, high, *ends)
    count = tries if verdict == (SUPPORTED if most else CONTRADICTED) else among
    if count == 1 or verdict == UNDECIDED:
        return verdict
    single, all_of_them = (
        float(special.stdtrit(n - 1, 1 - (1 - LEVEL) / 2 / tests)) for tests in (1, count)
    )
    middle, width = math.sqrt(low * high), math.sqrt(high / low) ** (all_of_them / single)
    return verdict if _inside(middle / width, middle * width, *ends) == verdict else UNDECIDED


def _inside(low: float, high: float, least: float, most: float) -> str:
    """Return the verdict on an interval that should lie between these ends: it does, it lies
    outside, or neither.
    """
    if least <= low and high <= most:
        return SUPPORTED
    return CONTRADICTED if high < least or low > most else UNDECIDED


def _variation(
    limit: float, runs: pd.DataFrame, values: list[float], tries: float, among: float
) -> Decided:
    """Judge the standard deviation over mean of repeats, with the confidence interval of a standard
    deviation of normal values.
    """
    n = len(values)
    if n < FEWEST:
        return UNDECIDED, Ratio(math.nan, None, None, n)
    spread = float(np.std(values, ddof=1) / np.mean(values))

    def ends(level: float) -> list[float]:
        tails = (0.5 - level / 2, 0.5 + level / 2)
        return [spread * math.sqrt((n - 1) / float(special.chdtri(n - 1, p))) for p in tails]

    below = ends(1 - (1 - VERDICT_LEVEL) / among)[1] < limit
    above = (
        ends(1 - (1 - VERDICT_LEVEL) / tries)[0] > limit
    )  # one group of many contradicts: `factor` says why
    low, high = ends(LEVEL)
    verdict = SUPPORTED if below else CONTRADICTED if above else UNDECIDED
    return verdict, Ratio(spread, low, high, n)
