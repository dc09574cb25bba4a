"""Repeats until decided: how much surer a verdict has to be at each look, and what such studies
save.

    python bench/rounds.py [--trials N] [--studies N] [--seed N]

    bounds     how often equal sides differ significantly at some look, with the factor of
               `over_settings.LOOKS`: at most 5 %. The
               truth is normal; one setting, pairs of two sides with the spread of their own (fewest
               degrees of freedom). `needed` is the factor with which it would be the 4 % of a
               single look
    page       studies of equal sides, asked at each look as the page does: something is ever sure in at most 5 %
    aach2023   the timed runs of study aach2023, with made-up rates: its published efficiencies, the frameworks'
               steps so many per cent apart, and noise. Runs and GPU hours against three fixed
               repeats, and how many of its questions are decided; `at random` numbers of studies
               with another noise each

It exits with 1 beyond a limit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import answers as equal_sides
import numpy as np
import pandas as pd
from ddlbench.analysis import over_settings
from ddlbench.analysis.tables import frame
from ddlbench.answers import choose
from ddlbench.answers.questions import _sides
from ddlbench.plan import bill, rounds
from ddlbench.plan.rounds import Why
from ddlbench.plan.runs import make_plan
from ddlbench.plan.values import Plan
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import Study, load_study
from ddlbench.settings.study_keys import Until
from numpy.random import Generator
from scipy import special

FALSE, ONE_LOOK = 0.05, 0.04
TIMES = ((3, 4), (2, 4), (3, 5), (2, 5), (3, 6), (3, 10), (2, 10), (5, 10), (3, 20))
PAIRS = (1, 3, 45)


def until(at_least: int, at_most: int) -> Until:
    return Until(until="decided", at_least=at_least, at_most=at_most)


def bounds(trials: int, rng: Generator) -> Iterator[tuple[str, float, bool]]:
    """How often Student's t of equal sides is beyond the bound at some look, where `pairs` are told
    at once.
    """
    for times in TIMES:
        at = rounds.looks(until(*times))
        pairs = rng.normal(size=(trials, times[1]))
        chances = [_chance(pairs[:, :n]) for n in at if n > 2]  # two pairs give no verdict
        least = np.min(chances, axis=0)
        for count in PAIRS:
            level = ONE_LOOK / count
            share = float(np.mean(least < level / over_settings.LOOKS[len(at)])) * count
            needed = level / float(np.quantile(least, level))
            chance = 2 * (FALSE * count / trials) ** 0.5
            yield (
                f"{times[0]} to {times[1]} | {len(at)} | {count} | {needed:.2f}",
                share,
                share <= FALSE + chance,
            )


def _chance(pairs: Any) -> Any:
    n = pairs.shape[1]
    t = np.abs(pairs.mean(axis=1)) / (pairs.std(axis=1, ddof=1) / np.sqrt(n))
    return 2 * special.stdtr(n - 1, -t)


def page(trials: int, rng: Generator) -> Iterator[tuple[str, float, bool]]:
    """Equal sides: how often something is sure at some look."""
    for noise in (equal_sides.NOISES[0], *equal_sides.NOISES[4:]):
        for count, settings in ((2, 1), (3, 1), (3, 2), (10, 1), (3, 10)):
            at = rounds.looks(until(3, 10))
            sides = equal_sides.named(count)
            one_of = len(sides) * (len(sides) - 1) / 2 * over_settings.LOOKS[len(at)]
            tries = max(100, trials // (count * settings))
            sure = 0
            for _ in range(tries):
                made = equal_sides.study(rng, noise, sides, settings, at[-1])
                judged = (_sides.judge(equal_sides.cut(made, n), sides, one_of)[2] for n in at)
                sure += any(over.verdict for overs in judged for over in overs.values())
            limit = FALSE + 2 * (FALSE * (1 - FALSE) / tries) ** 0.5
            yield f"{noise.name} | {count} | {settings}", sure / tries, sure / tries <= limit


# What is true of the made-up study: how fast frameworks and loaders are beside the first, and the
# efficiency that each doubling of workers keeps (as in the source: 0.76 on 1024, with the native
# loader 0.50 and less from 128 on).
FRAMEWORKS = {"ddp": 1.0, "horovod": 0.99, "deepspeed": 0.93, "zero-1": 0.90}
LOADERS = {"dali-cpu-only": 1.0, "dali-gpu": 1.04, "torchvision": 0.8}
KEEPS = {"dali-cpu-only": 0.966, "dali-gpu": 0.953, "torchvision": 0.87}
RATES = {"resnet50": 700.0, "resnet101": 420.0, "resnet152": 290.0}
TOP1 = {"step": 0.76, "cosine": 0.762, "exponential": 0.74}


def aach2023(studies: int, rng: Generator) -> Iterator[str]:
    """What the rounds of study aach2023 make of it, by noise and by repeats: one line each."""
    study, machine = load_study("aach2023"), load_machine("juwels-booster")
    whole = make_plan(_with(study, 10), machine)
    timed = {run for run, job in whole.runs.items() if job.spec.timed}
    hours = {
        row.run: row.gpu_hours or 0.0
        for row in bill.rows(whole, {"imagenet": 1_281_167}, Path("/nowhere"))
    }
    three = [run for run in timed if whole.runs[run].spec.repeat <= 3]
    spent = sum(hours[run] for run in three)
    for noise in (0.003, 0.01, 0.03):
        tables = [_runs(whole, timed, noise, rng) for _ in range(studies)]
        open_at_3 = [_open(table, {*three}, 1) for table in tables]
        asked = fmean(len(found) for found in open_at_3)
        decided = fmean(sum(not runs for runs in found.values()) for found in open_at_3)
        yield (
            f"| {noise:.1%} | three each | {len(three)} | {spent:,.0f} | 100 % | {decided:.1f} of"
            f" {asked:.0f} |"
        )
        for at_least, at_most in ((2, 10), (3, 10)):
            ends = [
                _grown(table, whole, timed, hours, until(at_least, at_most)) for table in tables
            ]
            runs, took = fmean(end.runs for end in ends), fmean(end.gpu_hours for end in ends)
            decided = fmean(asked - len(end.open) for end in ends)
            yield (
                f"| {noise:.1%} | until decided, {at_least} to {at_most} | {runs:.0f} | {took:,.0f}"
                f" | {took / spent:.0%} | {decided:.1f} of {asked:.0f} |"
            )


def _with(study: Study, repeats: int) -> Study:
    from dataclasses import replace

    blocks = tuple(replace(block, repeats=repeats) for block in study.blocks)
    return replace(study, blocks=blocks, figures=())


def _runs(plan: Plan, timed: Collection[str], noise: float, rng: Generator) -> pd.DataFrame:
    """A table of all runs with made-up rates and accuracies."""
    rows = []
    for run in sorted(timed):
        spec = plan.runs[run].spec
        doublings = np.log2(spec.workers / 4)
        rate = RATES[spec.model] * FRAMEWORKS[spec.framework] * LOADERS[spec.loader] * spec.workers
        rate *= KEEPS[spec.loader] ** doublings * np.exp(rng.normal(0, noise))
        top1 = TOP1[spec.schedule] - 0.002 * doublings**2 + rng.normal(0, 0.0015)
        images = 1_281_167
        measured = {
            "throughput_images_per_s": rate,
            "epoch_s": images / rate,
            "full_train_s": 90 * images / rate,
        }
        measured |= {
            "final_top1": top1,
            "images": images,
            "run_s": 90 * images / rate + 60,
            "status": "success",
        }
        rows.append(spec.columns() | measured)
    return frame("runs", rows)


def _open(table: pd.DataFrame, some: Collection[str], looks: int) -> Mapping[str, Collection[str]]:
    return choose.open_runs({"runs": table[table["run"].isin(some)]}, looks=looks)


def _grown(
    table: pd.DataFrame, plan: Plan, timed: Collection[str], hours: Mapping[str, float], said: Until
) -> rounds.Look:
    """The last look of the study."""
    every: dict[str, dict[int, str]] = {}
    for run in timed:
        repeat = plan.runs[run].spec.repeat
        every.setdefault(rounds.id_of_repeat(run, repeat, 1), {})[repeat] = run
    looks = len(rounds.looks(said))
    found = rounds.replay(said, every, timed, hours, lambda some: _open(table, some, looks))
    assert found[-1].why in (Why.DECIDED, Why.AT_MOST)
    return found[-1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=400_000)
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng, beyond = np.random.default_rng(given.seed), []
    parts = {
        bounds: (
            "| repeats | looks | pairs | needed | significantly different, though equal |",
            given.trials,
        ),
        page: ("| noise | sides | settings | ever sure, though equal |", given.trials // 200),
    }
    for part, (head, trials) in parts.items():
        print(head, "|" + "---|" * (head.count("|") - 1), sep="\n")
        for name, share, kept in part(trials, rng):
            print(f"| {name} | {share:.1%} |", flush=True)
            beyond += [] if kept else [f"{part.__name__}: {name}: {share:.1%}"]
        print()
    print(
        "| noise | repeats | runs | GPU hours | of three each | questions decided |",
        "|---|---|---|---|---|---|",
        sep="\n",
    )
    for line in aach2023(given.studies, rng):
        print(line, flush=True)
    for said in beyond:
        print(f"beyond the limits: {said}", file=sys.stderr)
    sys.exit(1 if beyond else 0)


if __name__ == "__main__":
    main()
