"""SLURM's warning before the time limit: the run writes a checkpoint, is submitted again, and goes on from there."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from ddlbench.record import read_log
from ddlbench.spec import RunSpec

from tests.contract import launches
from tests.slurm.conftest import Cluster, Project
from tests.slurm.test_faults import running, submitted


def events(folder, key: str) -> list:
    return [event.value for event in read_log(folder / "run.mllog") if event.key == key]


def assert_as_undisturbed(project: Project, tmp_path) -> None:
    """The one run has the losses of the same run without SLURM and without a break, to the last bit."""
    (folder,) = project.runs()
    spec = RunSpec.from_json(json.dumps(events(folder, "ddlbench_spec")[0]))
    alone = tmp_path / "here" / spec.id
    program = ("python", "-m", "ddlbench.rank")
    done = launches.execute(spec, alone, project.folder / "results/data/mnist5k", program=program)
    assert done.code == 0, done.output
    columns = ["step", "rank", "images", "lr", "loss"]
    mine, theirs = (
        pd.read_parquet(f / "steps.parquet").sort_values(["step", "rank"])[columns].reset_index(drop=True)
        for f in (folder, alone)
    )
    assert mine.equals(theirs)
    assert events(folder, "eval_accuracy") == events(alone, "eval_accuracy")


def test_a_run_is_warned_and_goes_on(project: Project, cluster: Cluster, tmp_path):
    """As `--signal` does at the limit: SIGUSR1 to the job's steps; two ranks on two nodes."""
    project.study("small", {"workers": [2], "global_batch": [128]}, epochs=8)
    process = project.start("--retries", "1", machine="thin")
    running(project)
    (job,) = cluster.jobs("RUNNING")
    cluster.ask("scancel", "--signal=USR1", job)
    assert process.wait(timeout=400) == 0, project.said
    (folder,) = project.runs()
    assert list(submitted(project).values()) == [2]
    (resumed,) = events(folder, "ddlbench_resumed")
    assert resumed["step"] > 0
    assert_as_undisturbed(project, tmp_path)


@pytest.mark.slow
def test_the_time_limit_itself(project: Project, tmp_path):
    """A partition that gives 4 minutes, of which the last two (or three) are the warning; the run takes longer."""
    project.machine("fat", partitions=[{"name": "booster", "max_nodes": 4, "max_minutes": 4}])
    project.study("small", {"workers": [2], "global_batch": [64]}, epochs=200)
    assert project.snakemake("--retries", "20", timeout_s=3000) == 0, project.said
    (folder,) = project.runs()
    assert events(folder, "ddlbench_resumed")
    assert "TIMEOUT" not in project.said  # it never met the limit itself
    assert_as_undisturbed(project, tmp_path)
