"""A study of a few runs with some of everything: frameworks and loaders, from prepared data to the
report.

One of its runs is of study `mini`, and is there already. Daily it trains with two frameworks,
without DALI, and draws one figure of each kind of tables of timed runs. The slow tier adds the
other frameworks, DALI, a large batch, a profiled run, and all figures, as does the whole demo
(test_demo.py). What each figure draws: tests/unit/test_figures.py; what a profiled run leaves:
tests/contract/test_options.py.
"""

import re
import shutil
from collections import Counter
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from ddlbench.analysis.scaling import scaling
from ddlbench.core import registry
from ddlbench.core.step_rows import STEP_PARTS
from ddlbench.show.figures import _style

from tests.conftest import SLOW, Once
from tests.workflow.conftest import assert_drawn, assert_nothing_to_do, snakemake

pytestmark = pytest.mark.more

# Daily, a figure for each choice of tables that figures of timed runs are made from. Not those of
# other runs than this study's: of inference, of a network that is counted, of DeepSpeed's profiler,
# of a machine that measures its energy.
ELSEWHERE = ("latency", "bytes-sent", "throughput-bandwidth", "operations", "images-per-joule")
OF_RUNS = tuple(name for name in registry.members("figures") if name not in ELSEWHERE)
OF_TABLES = {registry.member("figures", n).TABLES: n for n in OF_RUNS if n != "kernel-shares"}
FIGURES = OF_RUNS if SLOW else tuple(sorted(OF_TABLES.values()))
# Figures of other runs than those that are timed.
LEARNING = ["scaling", "large"] if SLOW else ["scaling"]
OTHERS = {
    "accuracy-batch-size": LEARNING,
    "accuracy-epochs": LEARNING,
    "learning-rate": LEARNING,
    "kernel-shares": ["profiled"],
}
STUDY = """
title: Some of everything
dataset: mnist5k
recipe: mini
models: [lenet]
frameworks: [ddp]
loaders: [native]
schedules: [cosine]
epochs: 2
runs:
  scaling:
    workers: [1, 2]
    batch_per_worker: [64]
  others:
    frameworks: [OTHERS]
    workers: [2]
    batch_per_worker: [64]
  loaders:
    loaders: [LOADERS]
    workers: [1]
    batch_per_worker: [64]
"""
MORE = """
  large:
    timed: false
    workers: [1]
    global_batch: [1000]
  profiled:
    profiled: true
    workers: [2]
    batch_per_worker: [64]
"""
# Beside DDP: daily the one that has a rendezvous of its own. That all train the same: tests/contract,
# tests/slurm.
FRAMEWORKS = (
    [name for name in registry.members("frameworks") if name != "ddp"] if SLOW else ["horovod"]
)
LOADERS = ["dali-cpu", "synthetic"] if SLOW else ["synthetic"]  # what DALI trains: tests/contract
RUNS = 2 + len(FRAMEWORKS) + len(LOADERS) + (1 + 1 if SLOW else 0)


@pytest.fixture(scope="module")
def study(once: Once, finished_once: Path) -> Path:
    def make(folder: Path) -> None:
        shutil.copytree(finished_once, folder, symlinks=True, dirs_exist_ok=True)
        timed = ["scaling", "others", "loaders"]
        figures = {name: {"plot": name, "runs": OTHERS.get(name, timed)} for name in FIGURES}
        runs = STUDY.replace("OTHERS", ", ".join(FRAMEWORKS)).replace("LOADERS", ", ".join(LOADERS))
        runs += MORE if SLOW else ""
        (folder / "config/studies/everything.yaml").write_text(
            runs + yaml.safe_dump({"figures": figures})
        )
        done = everything(folder)
        assert done.returncode == 0, done.stdout

    return once("everything", make)


def everything(project: Path, *arguments: str):
    return snakemake(project, *arguments, "--config", "study=everything", "machine=mini")


@pytest.fixture(scope="module")
def runs(study: Path) -> pd.DataFrame:
    return pd.read_parquet(study / "results/everything/mini/tables/runs.parquet")


def test_all_runs_succeed_and_those_that_were_there_are_not_made_again(
    study: Path, runs: pd.DataFrame
) -> None:
    assert len(runs) == RUNS
    assert set(runs["status"]) == {"success"}
    assert set(runs["framework"]) == {"ddp", *FRAMEWORKS}
    assert (runs.loc[runs["timed"], "throughput_images_per_s"] > 0).all()
    # No speed is claimed of runs that shared the machine, or carried a profiler.
    assert runs.loc[~runs["timed"], "throughput_images_per_s"].isna().all()
    logs = "".join(log.read_text() for log in (study / ".snakemake/log").glob("*.log"))
    trained = Counter(re.findall(r"^Job \d+: train (\S+)$", logs, re.M))
    assert {run: trained[run] for run in runs["run"]} == dict.fromkeys(runs["run"], 1)
    assert trained.total() == RUNS + 1  # and the run of `mini` that is not of this study


def test_frameworks_train_the_same_thing(runs: pd.DataFrame) -> None:
    alike = runs[(runs["loader"] == "native") & (runs["workers"] == 2) & runs["timed"]]
    assert set(alike["framework"]) == {"ddp", *FRAMEWORKS}
    assert alike["final_loss"].nunique() == 1, alike["final_loss"]


def test_speed_up_of_every_series_is_over_one_worker(runs: pd.DataFrame) -> None:
    table = scaling(runs[runs["framework"] == "ddp"])
    assert sorted(table["workers"]) == [1] * (1 + len(LOADERS)) + [2]
    assert set(table["ref_workers"]) == {1}


def test_steps(study: Path) -> None:
    (folder,) = study.glob("results/runs/*-horovod-native-2workers*")
    steps = pq.read_table(folder / "steps.parquet").to_pandas()
    assert set(steps["rank"]) == {0, 1}
    assert steps.groupby("epoch")["images"].sum().unique().tolist() == [4000]
    assert (steps[[*STEP_PARTS]] >= 0).all().all()


def test_figures_and_report(study: Path) -> None:
    assert_drawn(study / "results/everything/mini", set(FIGURES))
    for figure in FIGURES:
        assert (
            _style.NOTHING
            not in (study / f"results/everything/mini/figures/{figure}.svg").read_text()
        )


def test_a_second_time_there_is_nothing_to_do(study: Path) -> None:
    assert_nothing_to_do(everything(study))
