"""`make demo`, as a user has it: study demo from nothing to the report, really run. Minutes.

What each run and series leaves: test_study.py, every day from a few runs.
"""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import Once, copy_project
from tests.workflow.conftest import assert_drawn, assert_nothing_to_do, snakemake

pytestmark = pytest.mark.slow

SERIES = {(framework, "native") for framework in ("ddp", "horovod", "deepspeed")} | {
    ("ddp", "torchvision")
}


@pytest.fixture(scope="module")
def demo(once: Once) -> Path:
    def make(folder: Path) -> None:
        done = snakemake(copy_project(folder))
        assert done.returncode == 0, done.stdout

    return once("demo", make)


@pytest.fixture(scope="module")
def runs(demo: Path) -> pd.DataFrame:
    return pd.read_parquet(demo / "results/demo/local/tables/runs.parquet")


def test_every_framework_with_every_loader(runs: pd.DataFrame) -> None:
    scaling = runs[runs["timed"]]
    assert len(runs) == 27
    assert set(zip(scaling["framework"], scaling["loader"], strict=True)) == SERIES
    assert len(scaling) == 2 * 2 * 3 + 2 * 3
    assert set(runs["status"]) == {"success"}
    assert (scaling["throughput_images_per_s"] > 0).all()
    # No speed is claimed of runs that shared the machine.
    assert runs.loc[~runs["timed"], "throughput_images_per_s"].isna().all()


def test_no_other_loader_is_surely_better(demo: Path) -> None:
    """On a machine that does nothing else it is sure that `native` is."""
    answers = json.loads((demo / "results/demo/local/study.json").read_text())["answers"]
    values = [answer["value"] for answer in answers]
    (loader,) = [value for value in values if value["question"] == "loader"]
    assert loader["taken"]["loader"] == "native" or loader["certainty"] != "sure"


def test_frameworks_train_the_same_thing(runs: pd.DataFrame) -> None:
    losses = runs[runs["timed"]].groupby(["loader", "workers", "repeat"])["final_loss"]
    assert (losses.nunique() == 1).all(), losses.unique()


def test_large_batches_lose_accuracy(runs: pd.DataFrame) -> None:
    sweep = runs[~runs["timed"]].pivot(
        index="global_batch", columns=["schedule", "repeat"], values="final_top1"
    )
    assert (sweep.loc[32] > 0.9).all(), sweep
    assert (sweep.loc[2048] < sweep.loc[32] - 0.1).all(), sweep


def test_records_pass_mlperf_s_checker(demo: Path, tmp_path: Path) -> None:
    logs = sorted(demo.glob("results/runs/*/run.mllog"))
    assert len(logs) == 27
    checker = [
        sys.executable,
        "-m",
        "mlperf_logging.compliance_checker",
        "--usage",
        "training",
        "--ruleset",
        "4.0.0",
    ]
    for log in logs[:: len(logs) // 5]:  # the contract tier checks one of each framework
        done = subprocess.run([*checker, str(log)], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0 and "SUCCESS" in done.stdout + done.stderr, (
            done.stdout + done.stderr
        )


def test_figures_and_report(demo: Path) -> None:
    figures = {
        "throughput",
        "speed-up",
        "efficiency",
        "accuracy-batch-size",
        "accuracy-epochs",
        "learning-rate",
    }
    figures |= {"step-times", "memory"}
    assert_drawn(demo / "results/demo/local", figures)


def test_a_second_time_there_is_nothing_to_do(demo: Path) -> None:
    assert_nothing_to_do(snakemake(demo))
