"""How many claims of a source stay open when runs are made as it describes, with noise: `python
bench/claims.py`.

The runs are those of study aach2023-short on JUWELS Booster with the source's own three repeats.
Their times and rates are what Aach et al. 2023 say, times log-normal noise of a run; accuracies
have a fifth of it, in points. A claim is open where its verdict is neither "supported" nor
"contradicted". Limits: `OPEN` claims on average, and hardly any that is contradicted although the
runs do what it says.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "workflow")]

from ddlbench.analysis import claim_verdicts, claims  # noqa: E402
from ddlbench.analysis.scaling import TIMES  # noqa: E402
from ddlbench.plan.runs import make_plan  # noqa: E402
from ddlbench.settings.machine import load_machine  # noqa: E402
from ddlbench.settings.study import load_study  # noqa: E402

from tests.unit import told  # noqa: E402

SOURCE = "aach2023"
OPEN = {0.003: 5, 0.01: 16, 0.02: 30}  # of 65 claims, by the noise of a run
FALSE = 0.5  # claims that are contradicted, on average


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
    print("| noise | claims | open | limit | contradicted | limit |\n|---|---|---|---|---|---|")
    kept = True
    for noise, limit in OPEN.items():
        counts = []
        for seed in range(tries):
            table = claim_verdicts.verdicts(
                asked, *noisy(faithful, noise, np.random.default_rng(seed))
            )
            judged = table[
                ~table["id"].isin(otherwise) & (table["verdict"] != claim_verdicts.NOT_TESTABLE)
            ]
            counts.append(
                [
                    (judged["verdict"] == verdict).sum()
                    for verdict in (claim_verdicts.UNDECIDED, claim_verdicts.CONTRADICTED)
                ]
            )
        still_open, false = np.mean(counts, axis=0)
        kept &= still_open <= limit and false <= FALSE
        print(
            f"| {noise:.1%} | {len(judged)} | {still_open:.1f} | {limit} | {false:.1f} | {FALSE} |",
            flush=True,
        )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
