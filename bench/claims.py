"""How many claims of a source stay open when runs are made as it describes, with noise: `python
bench/claims.py`.

The runs are those of study aach2023-short on JUWELS Booster with the source's own three repeats.
Their times and rates are what Aach et al. 2023 say, times log-normal noise of a run; accuracies
have a fifth of it, in points. A claim is open where its verdict is neither "supported" nor
"contradicted". Limits: `OPEN` claims on average, and hardly any that is contradicted although the
runs do what it says.

Beside it stands what an oracle leaves open of the same runs: it knows the noise of a run exactly, so
its intervals are those of the normal distribution. What it cannot decide, no estimate of the spread
can. `same rule`: it judges all cells and claims at once, as ours. `each alone`: every cell is judged
as if it were the only one, so chance has as many tries as there are cells. `opposite`: the first
study's runs, asked for the opposite of each claim.
"""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import special

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "workflow")]

from ddlbench.analysis import claim_verdicts, claims  # noqa: E402
from ddlbench.analysis.intervals import LEVEL, VERDICT_LEVEL  # noqa: E402
from ddlbench.analysis.scaling import TIMES  # noqa: E402
from ddlbench.analysis.significance import FEWEST  # noqa: E402
from ddlbench.plan.runs import make_plan  # noqa: E402
from ddlbench.settings.machine import load_machine  # noqa: E402
from ddlbench.settings.study import load_study  # noqa: E402

from tests.unit import told  # noqa: E402

SOURCE = "aach2023"
OPEN = {0.003: 5, 0.01: 14, 0.02: 23}  # of 68 claims, by the noise of a run
FALSE = 0.5  # claims that are contradicted, on average
TURNED = {"above": "below", "below": "above"}
FAR = 1.5  # times the value of a claim
MISSED = 2  # opposites that are not contradicted at the least noise


def noisy(
    tables: tuple[pd.DataFrame, pd.DataFrame], noise: float, rng: np.random.Generator
) -> Iterator[pd.DataFrame]:
    """Yield tables `runs` and `kernels` with noise: each run is so much slower or faster as a
    whole.
    """
    runs, kernels = (table.copy() for table in tables)
    slower = np.exp(rng.normal(0, noise, len(runs)))
    for column in {*TIMES.values(), "full_train_s"} & {*runs}:
        runs[column] *= slower
    runs["throughput_images_per_s"] /= slower
    runs["final_top1"] = (runs["final_top1"] + rng.normal(0, noise / 5, len(runs))).clip(0, 1)
    for column in ("restart_s", "cpu_cores"):
        runs[column] *= np.exp(rng.normal(0, noise, len(runs)))
    for column in told.SHARES:
        kernels[column] *= np.exp(rng.normal(0, noise, len(kernels)))
    yield from (runs, kernels)


@dataclass(frozen=True)
class Cell:
    """A cell as the oracle sees it: the mean logarithm of its repeats' ratio, with its standard error.

    The ratio should lie between the exponentials of `least` and `most`.
    """

    mean: float
    error: float
    least: float
    most: float

    def verdict(self, level: float, one_of: float) -> str:
        """Return the verdict where any one of so many cells would decide."""
        width = float(special.ndtri(1 - (1 - level) / 2 / one_of)) * self.error
        return claim_verdicts._inside(self.mean - width, self.mean + width, self.least, self.most)


def error_of(runs: pd.DataFrame, column: str, noise: float) -> float:
    """Return the standard deviation of the logarithm of one run's value, as `noisy` makes it."""
    if column == "top1_percent":
        return 100 * noise / 5 / float(runs[column].median())
    # A base has a noise of its own.
    return noise * math.sqrt(2) if column in ("efficiency", "speed_up") else noise


def known(asked: claims.Asked, noise: float) -> list[Cell]:
    """Return the cells of a claim that have enough repeats for a verdict."""
    claim, cells = asked.claim, []
    for ours, theirs in asked.sides:
        seen = claim_verdicts._compared(claim, ours, theirs, asked.column)
        if claim.value is None or claim.relation in ("above", "below"):
            least, most = (-math.inf, 0.0) if claim.relation == "below" else (0.0, math.inf)
        else:
            allowed = claim_verdicts._allowed(claim, theirs, asked.column)
            least, most = math.log(allowed[0]), math.log(allowed[1])
        sides = [ours] if theirs is None else [ours, theirs]
        error = math.hypot(*(error_of(side, asked.column, noise) for side in sides))
        if seen.n >= FEWEST:
            cells.append(Cell(seen.mean, error / math.sqrt(seen.n), least, most))
    return cells


def foretold(claim: claims.Claim, cells: Sequence[Cell], noise: float, among: float | None) -> str:
    """Return the oracle's verdict, as if the claim were one of `among`; None: as if each cell were
    the only one.
    """
    if claim.quantity == "variation":
        assert claim.value is not None  # it is below so much
        return claim_verdicts.SUPPORTED if noise < claim.value else claim_verdicts.CONTRADICTED
    level = VERDICT_LEVEL if claim.relation in (*claims.ORDERINGS, "above", "below") else LEVEL
    some = claim.relation in ("factor-up-to", "ordering-some")
    enough = claim_verdicts.SUPPORTED if some else claim_verdicts.CONTRADICTED
    found = []
    for cell in cells:
        verdict = cell.verdict(level, among or 1.0)
        if verdict == enough and among:
            verdict = cell.verdict(level, among * len(cells))
        found.append(verdict)
    order = [claim_verdicts.CONTRADICTED, claim_verdicts.UNDECIDED, claim_verdicts.SUPPORTED]
    return min(found, key=order[::-1].index if some else order.index)


def oracle(
    asked: Sequence[claims.Asked], cells: Sequence[Sequence[Cell]], noise: float, at_once: bool
) -> pd.Series:
    """Return the verdicts of one who knows the noise of a run, by the id of the claim; `at_once`: by
    the rule of `claim_verdicts.verdicts`.
    """
    share = 1.0
    while True:
        among = 1 / share if at_once else None
        found = pd.Series(
            {
                one.claim.id: foretold(one.claim, of_claim, noise, among)
                for one, of_claim in zip(asked, cells, strict=True)
            }
        )
        decided = max(1, int((found != claim_verdicts.UNDECIDED).sum()))
        if not at_once or decided >= share * len(found):
            return found
        share = decided / len(found)


def opposite(claim: claims.Claim) -> claims.Claim:
    """Return a claim that says the opposite, or a value that is far from what the claim says."""
    if claim.relation in claims.ORDERINGS:
        mine = {name: claim.left[name] for name in claim.right if name in claim.left}
        return replace(claim, left=claim.left | claim.right, right=mine)
    if claim.relation in TURNED and claim.quantity != "variation":
        return replace(claim, relation=TURNED[claim.relation])
    assert claim.value is not None
    return replace(claim, value=claim.value * (FAR if claim.quantity != "variation" else 0.02))


def main() -> int:
    """Print open and falsely contradicted claims by noise; return 1 beyond a limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tries", type=int, default=5, help="studies for each noise (default: 5)")
    tries = parser.parse_args().tries
    plan = make_plan(load_study("aach2023-short"), load_machine("juwels-booster"))
    asked = [
        one
        for one in claims.read(ROOT / "config/references/claims.csv")
        if one.source == SOURCE and one.quantity
    ]
    otherwise = {
        f"{SOURCE}-{one}" for ids in told.OTHERWISE.values() for one in ids
    }  # it contradicts itself there
    faithful = told.runs(plan, told.TELLERS[SOURCE, ""])
    print(
        "| noise | claims | open | limit | contradicted | limit | oracle: open, same rule"
        " | contradicted | each alone | contradicted | opposite: contradicted | supported |\n"
        + "|---" * 12
        + "|"
    )
    kept, ours_alone = True, []
    for noise, limit in OPEN.items():
        counts, alone = [], Counter[str]()
        for seed in range(tries):
            tables = tuple(noisy(faithful, noise, np.random.default_rng(seed)))
            table = claim_verdicts.verdicts(asked, *tables).set_index("id")["verdict"]
            judged = table[~table.index.isin(otherwise) & (table != claim_verdicts.NOT_TESTABLE)]
            measured = claims.quantities(*tables)
            of_claims = [claims.ask(one, measured) for one in asked if one.id in judged.index]
            cells = [known(one, noise) for one in of_claims]
            by_rule, each = (oracle(of_claims, cells, noise, rule) for rule in (True, False))
            counts.append(
                [
                    int((verdicts == verdict).sum())
                    for verdicts in (judged, by_rule, each)
                    for verdict in (claim_verdicts.UNDECIDED, claim_verdicts.CONTRADICTED)
                ]
            )
            known_to_it = by_rule[by_rule != claim_verdicts.UNDECIDED].index
            if seed == 0:
                turned = [opposite(one) for one in asked if one.id in judged.index]
                against = claim_verdicts.verdicts(turned, *tables)["verdict"].value_counts()
            alone.update(judged[judged == claim_verdicts.UNDECIDED].index.intersection(known_to_it))
        mean = np.mean(counts, axis=0)
        kept &= bool(mean[0] <= limit and mean[1] <= FALSE)
        kept &= not against.get(claim_verdicts.SUPPORTED, 0)
        if noise == min(OPEN):
            kept &= against.get(claim_verdicts.CONTRADICTED, 0) >= len(judged) - MISSED
        print(
            f"| {noise:.1%} | {len(judged)} | {mean[0]:.1f} | {limit} | {mean[1]:.1f} | {FALSE} |"
            + "".join(f" {value:.1f} |" for value in mean[2:])
            + f" {against.get(claim_verdicts.CONTRADICTED, 0)} | {against.get(claim_verdicts.SUPPORTED, 0)} |",
            flush=True,
        )
        named = ", ".join(f"{one} ({count})" for one, count in alone.most_common())
        ours_alone.append(f"{noise:.1%}: {named or 'none'}")
    print(
        f"\nOpen for us, decided by the oracle with the same rule (in so many of {tries} studies):"
    )
    print(*ours_alone, sep="\n")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
