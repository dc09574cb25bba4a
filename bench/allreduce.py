#!/usr/bin/env python
"""Would all-reduces measured alone (rule `allreduce`) improve predictions? Tried on simulated clusters of known truth.

`python bench/allreduce.py` predicts 64 nodes from 1, 2, 4 and 8, by the default model and by two that also know what
an all-reduce of the gradients takes on each number of nodes, the asked one included. docs/prediction.md says what came
out. Truths, 4 workers per node: compute with stragglers, and an all-reduce that hides behind a share of the backward
pass, as far as it is long enough; its time in training is 1 to 1.3 times that measured alone.

- even: all links are alike, a ring.
- tapered: from 16 nodes on, links have a half to a quarter of the rate, as between the cells of a large network.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from statistics import median

import numpy as np
from ddlbench.analysis.prediction import Measured, _priors, regression
from numpy.typing import NDArray
from scipy.optimize import nnls

NODES, NODE = (1, 2, 4, 8, 64), 4
NOISE, NOISE_ALONE = 0.01, 0.03  # of a rate and of an all-reduce measured alone


@dataclass(frozen=True)
class Cluster:
    """Images/s of all workers and seconds of an all-reduce by NODES: as measured; the last rate is the truth."""

    batch: int
    rates: tuple[float, ...]
    alone_s: tuple[float, ...]


def cluster(random: np.random.Generator, tapered: bool) -> Cluster:
    compute_s, batch = random.uniform(0.05, 0.3), int(random.choice([32, 64, 128, 256]))
    spread, overlap = random.uniform(0.002, 0.03), random.uniform(0.3, 0.95)
    link, size, latency = random.uniform(1e9, 20e9), random.uniform(5e7, 5e8), random.uniform(5e-6, 5e-5)
    slower, shared = random.uniform(2, 4) if tapered else 1.0, random.uniform(1, 1.3)
    rates, alone = [], []
    for nodes in NODES:
        rate = link / (slower if nodes > 16 else 1.0)
        ring = 2 * (nodes - 1) / nodes * size / rate + 2 * (nodes - 1) * latency if nodes > 1 else size / 100e9
        slowest = compute_s * (1 + spread * np.sqrt(2 * np.log(nodes * NODE)))
        step_s = slowest + max(0.0, shared * ring - overlap * compute_s) + 0.05 * ring
        noise = random.normal(1, NOISE) if nodes != NODES[-1] else 1.0
        rates.append(float(batch / step_s * nodes * NODE * noise))
        alone.append(float(ring * random.normal(1, NOISE_ALONE)))
    return Cluster(batch, tuple(rates), tuple(alone))


def default(rates: tuple[float, ...], batch: int) -> float:
    """The default model's images/s on NODES[-1] nodes."""
    workers = tuple(NODE * nodes for nodes in NODES[:-1])
    known = Measured(workers, rates, (float(batch),) * len(rates), NODE)
    return float(regression.predict(known, [NODE * NODES[-1]], [float(batch)], _priors.read()).images_per_s[0])


def share(one: Cluster) -> tuple[NDArray[np.float64], float]:
    """Steps [s] on the known nodes, and how much of an all-reduce adds to them: step = a + share x all-reduce."""
    steps = one.batch * NODE * np.array(NODES[:-1]) / np.array(one.rates[:-1])
    weights = 1 / steps
    columns = np.column_stack([np.ones(len(steps)), np.array(one.alone_s[:-1])]) * weights[:, None]
    return steps, float(nnls(columns, steps * weights)[0][1])


def predictions(one: Cluster) -> dict[str, float]:
    """Images/s on NODES[-1] nodes by each model."""
    steps, added = share(one)
    workers = NODE * np.array(NODES)
    rest = np.maximum(steps - added * np.array(one.alone_s[:-1]), 0.1 * steps)
    rate = default(tuple(float(value) for value in one.batch * workers[:-1] / rest), one.batch)
    step_s = one.batch * workers[-1] / rate + added * one.alone_s[-1]
    line_s = float(np.mean(rest)) + added * one.alone_s[-1]
    return {
        "regression": default(one.rates[:-1], one.batch),
        "regression of the rest + all-reduce": float(one.batch * workers[-1] / step_s),
        "constant + all-reduce": float(one.batch * workers[-1] / line_s),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=200)
    given = parser.parse_args()
    random = np.random.default_rng(2)
    print("| model | even: median, p90 | tapered: median, p90 |\n|---|---|---|")
    errors: dict[str, list[str]] = {}
    for tapered in (False, True):
        tried: dict[str, list[float]] = {}
        for _ in range(given.clusters):
            one = cluster(random, tapered)
            for model, rate in predictions(one).items():
                tried.setdefault(model, []).append(abs(rate / one.rates[-1] - 1))
        for model, found in tried.items():
            ninth = sorted(found)[round(0.9 * (len(found) - 1))]
            errors.setdefault(model, []).append(f"{median(found):.1%}, {ninth:.0%}")
    for model, cells in errors.items():
        print(f"| {model} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
