#!/usr/bin/env python
"""How good predictions are at worker counts that were not measured: the package's model beside its rivals.

`python bench/prediction.py` prints docs/measurements/prediction.md. It exits with 1 if intervals hold the truth in less
than 90 % of the cases, or if a rival has a smaller median error at 8 times the largest known count. `--fit` makes
config/references/prediction-priors.json anew instead.

Published series: priors and the widening of intervals are fitted without the source that is predicted. Simulated
clusters: step times drawn from a truth that no model knows (compute with stragglers, a ring all-reduce over two kinds
of links, a loader with a ceiling); 1 to 8 nodes are known, 64 are predicted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import learning
import numpy as np
from ddlbench.analysis.prediction import Measured, _priors
from ddlbench.analysis.prediction._priors import Published
from ddlbench.analysis.statistics import over_repeats
from learning import DEFAULT, Try
from rivals import MODELS

HOLD = 0.90
EXTRA_P = "extra-p"


def simulated(count: int, seed: int) -> list[Published]:
    """Clusters with known truth: rates of 1, 2, 4, 8 and 64 nodes of 4 workers, with 1 % noise on what is measured."""
    random = np.random.default_rng(seed)
    series = []
    for number in range(count):
        compute_s, batch, node = random.uniform(0.05, 0.3), int(random.choice([32, 64, 128, 256])), 4
        spread = random.uniform(0.002, 0.03)
        link = random.uniform(1e9, 20e9)  # bytes/s of a node's link
        size, latency = random.uniform(5e7, 5e8), random.uniform(5e-6, 5e-5)
        overlap = random.uniform(0.3, 0.95)
        ceiling = random.uniform(1.05, 3) * batch / compute_s  # images/s that a worker's loader can give
        workers, rates = (4, 8, 16, 32, 256), []
        for at in workers:
            nodes = at // node
            slowest = compute_s * (1 + spread * np.sqrt(2 * np.log(at)))
            ring = 2 * (nodes - 1) / nodes * size / link + 2 * (nodes - 1) * latency if nodes > 1 else 0.0
            step_s = slowest + max(0.0, ring - overlap * compute_s) + 0.05 * ring
            rates.append(min(batch / step_s, ceiling) * at)
        noisy = [rate * float(random.normal(1, 0.01)) for rate in rates[:-1]]
        measured = Measured(workers, (*noisy, rates[-1]), (float(batch),) * len(workers), node)
        series.append(Published("simulated", str(number), measured))
    return series


def published() -> list[Try]:
    series = _priors.published()
    left = list(learning.left_out(series))
    made = []
    for out, (some, priors) in enumerate(left):
        low, high = learning.calibrate([*left[:out], *left[out + 1 :]])
        made += list(learning.tries(some, replace(priors, widen_low=low, widen_high=high)))
    return made


def extra_p(made: Sequence[Try], series: Sequence[Published], python: str) -> list[Try]:
    """What Extra-P predicts where the default was tried from as many points as Extra-P needs; `extra_p.py` asks it."""
    tried = [one for one in made if one.model == DEFAULT and one.points >= 5]
    points = {(one.source, one.name): one.measured for one in series}
    cases = []
    for one in tried:
        known = points[one.source, one.series].first(one.points)
        seconds = [count / rate for count, rate in zip(known.workers, known.images_per_s, strict=True)]
        cases.append((known.workers, seconds, one.workers))  # of a worker for an image
    asked = [python, str(Path(__file__).with_name("extra_p.py"))]
    done = subprocess.run(asked, input=json.dumps(cases), capture_output=True, text=True, check=True)
    said = zip(tried, json.loads(done.stdout), strict=True)
    # A model that falls below 0 seconds predicts nothing.
    return [
        replace(one, model=EXTRA_P, predicted=one.workers / seconds if seconds > 0 else 0.0, low=None, high=None)
        for one, seconds in said
        if seconds is not None
    ]


def table(made: Sequence[Try], models: Sequence[str], doublings: Sequence[int]) -> list[str]:
    """Median and ninth decile of errors, and the share of intervals that hold, by model and distance; in Markdown."""
    head = " | ".join(f"{2**d}x: median, p90, held" for d in doublings)
    lines = [f"| model | {head} |", "|---" * (len(doublings) + 1) + "|"]
    for model in models:
        cells = []
        for distance in doublings:
            here = [one for one in made if one.model == model and abs(one.doublings - distance) < 0.01]
            errors, held = sorted(one.error for one in here), [one.held for one in here if one.held is not None]
            if not errors:
                cells.append("-")
                continue
            hold = f"{sum(held) / len(held):.0%}" if held else "-"
            ninth = errors[round(0.9 * (len(errors) - 1))]
            cells.append(f"{median(errors):.1%}, {ninth:.0%}, {hold} (n={len(errors)})")
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return lines


def ways(eightfold: Sequence[Try]) -> list[str]:
    """The errors of these tries by several ways of counting, each median with its 95 % interval; in Markdown.

    The interval is that of a median of independent cases (order statistics). Cases of a series are not independent, so
    the true one is wider.
    """
    last: dict[tuple[str, str], Try] = {}
    for one in eightfold:
        last[one.source, one.series] = max(last.get((one.source, one.series), one), one, key=lambda of: of.workers)
    several = [one for one in eightfold if one.points > 1]
    counted = {
        "every beginning of a series": eightfold,
        "with two points or more": several,
        "the last of a series only": [*last.values()],
        "every beginning, without the collapses (errors above 30 %)": [one for one in eightfold if one.error < 0.3],
    }
    lines = ["| counted | n | median (95 % interval) | p90 |", "|---|---|---|---|"]
    for what, some in counted.items():
        errors = sorted(one.error for one in some)
        over = over_repeats(errors)
        ninth = errors[round(0.9 * (len(errors) - 1))]
        interval = "-" if over.low is None or over.high is None else f"{over.low:.1%} to {over.high:.1%}"
        lines.append(f"| {what} | {len(errors)} | {median(errors):.1%} ({interval}) | {ninth:.0%} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extra-p", metavar="PYTHON", help="of an environment with Extra-P: score it too (extra_p.py)")
    parser.add_argument("--simulated", type=int, default=200, help="number of simulated clusters")
    parser.add_argument("--fit", action="store_true", help=f"write {_priors.FITTED.name} anew, and stop")
    given = parser.parse_args()
    if given.fit:
        series = _priors.published()
        learning.write(learning.fit_calibrated(series), len(series))
        return
    models = [DEFAULT, *MODELS]
    made = published()
    for group in ("from beyond a node", "within a node"):
        print(f"\nPublished series, {group}:\n")
        print(*table([one for one in made if one.group == group], models, (1, 2, 3)), sep="\n")
    if given.extra_p:
        enough = [one for one in made if one.points >= 5]
        enough += extra_p(enough, _priors.published(), given.extra_p)
        enough = [one for one in enough if one.group == "from beyond a node"]
        print("\nThe same, from beyond a node, from five points or more:\n")
        print(*table(enough, [*models, EXTRA_P], (1, 2, 3)), sep="\n")
    truth = [one for one in learning.tries(simulated(given.simulated, 1), _priors.read()) if one.points == 4]
    print(f"\n{given.simulated} simulated clusters, 64 nodes from 1, 2, 4 and 8:\n")
    print(*table(truth, models, (3,)), sep="\n")
    ours = [one for one in made if one.model == DEFAULT and one.group == "from beyond a node"]
    far = {
        model: median(
            one.error
            for one in made
            if one.model == model and one.group == "from beyond a node" and abs(one.doublings - 3) < 0.01
        )
        for model in models
    }
    hold = sum(bool(one.held) for one in ours) / len(ours)
    print(f"\nintervals of {DEFAULT} hold the truth in {hold:.1%} of {len(ours)} cases (at least {HOLD:.0%})")
    print(f"\n{DEFAULT} at 8x from beyond a node, by what counts as a case:\n")
    print(*ways([one for one in ours if abs(one.doublings - 3) < 0.01]), sep="\n")
    best = min(far, key=lambda model: far[model])
    print(f"smallest median error at 8x: {best}, {far[best]:.1%}; {DEFAULT} {far[DEFAULT]:.1%}")
    sys.exit(int(hold < HOLD or best != DEFAULT))


if __name__ == "__main__":
    main()
