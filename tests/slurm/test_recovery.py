"""What is kept and what is made again, when jobs end otherwise than they should, or settings change
meanwhile.
"""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pandas as pd
import pytest
import yaml
from ddlbench.core.mllog import read_log

from tests.slurm.conftest import Cluster, Project, ended, until
from tests.slurm.test_faults import LONG, running, submitted

RECIPE = Path("config/recipes/demo.yaml")


def said(folder: Path, key: str) -> list:
    return [event.value for event in read_log(folder / "run.mllog") if event.key == key]


def base_lr(project: Project, value: float) -> None:
    """Another learning rate in the study's recipe."""
    recipe = yaml.safe_load((project.folder / RECIPE).read_text())
    (project.folder / RECIPE).write_text(yaml.safe_dump(recipe | {"base_lr": value}))


def rates(project: Project) -> set[float]:
    """The base learning rates of the records."""
    return {said(run, "ddlbench_spec")[0]["recipe"]["base_lr"] for run in project.runs()}


def records(project: Project) -> dict[str, tuple[int, bytes]]:
    """Name of each record's log: which file it is, and what stands in it."""
    logs = [run / "run.mllog" for run in project.runs()]
    return {log.parent.name: (log.stat().st_ino, log.read_bytes()) for log in logs}


def test_a_killed_rank_is_named_with_its_host(project: Project, cluster: Cluster):
    """Two ranks on two nodes, which are no children of their supervisor."""
    project.study("small", {"workers": [2], "global_batch": [512]}, epochs=LONG)
    project.brake(0.5)
    process = project.start("--retries", "0", machine="thin")
    (log,) = running(project)
    who = json.loads((log.parent / "rank-1.json").read_text())
    os.kill(who["pid"], signal.SIGKILL)
    assert ended(process, 300) != 0
    (told,) = [
        json.loads(path.read_text())
        for path in project.folder.glob("results/runs/*/failed/failure.json")
    ]
    assert (told["cause"], told["rank"], told["host"]) == ("killed", 1, who["host"])
    assert f"rank 1 was killed (Killed) (on {who['host']})" in project.said


@pytest.mark.slow
@pytest.mark.parametrize(("proctrack", "workers"), [("linuxproc", 1), ("cgroup", 2)])
def test_a_cancelled_job_leaves_a_checkpoint(
    project: Project, cluster: Cluster, another, proctrack, workers
):
    """SIGTERM to every process of the job: its shell dies first, the loader's workers do not."""
    another(PROCTRACK=proctrack, KILLWAIT="30")
    project.study("small", {"workers": [workers], "global_batch": [128]}, epochs=LONG)
    brake = project.brake(0.1)  # it still trains when it is cancelled
    process = project.start("--retries", "1", machine="thin")
    running(project)
    (job,) = cluster.jobs("RUNNING")
    cluster.ask("scancel", job)
    brake.unlink()
    assert ended(process, 300) == 0, project.said
    assert list(submitted(project).values()) == [2]
    (folder,) = project.runs()
    (resumed,) = said(folder, "ddlbench_resumed")
    assert resumed["step"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("remembers", [True, False])
def test_runs_that_outlive_a_killed_snakemake_are_made_again_with_other_settings(
    project: Project, cluster: Cluster, remembers: bool
):
    """All of them, not those alone that Snakemake remembers; also if it remembers nothing."""
    project.study("small", {"workers": [1], "global_batch": [512], "repeats": 2}, epochs=5)
    brake = project.brake(2)  # the job still runs when Snakemake has started again
    process = project.start("tables", "--jobs", "1")
    running(project)
    process.kill()
    process.wait()
    process = project.start("tables")
    until(lambda: "waiting for 1 SLURM jobs" in project.said, 120)
    brake.unlink()
    assert ended(process, 600) == 0, project.said
    assert rates(project) == {0.002}
    first = records(project)
    if not remembers:
        shutil.rmtree(project.folder / ".snakemake")
    base_lr(project, 0.02)
    assert project.snakemake("tables", "-np") == 0, project.said
    assert re.search(r"^train +2$", project.said, re.MULTILINE), project.said
    assert project.snakemake("tables") == 0, project.said
    second = records(project)
    assert rates(project) == {0.02}
    assert second.keys() == first.keys() and all(second[run] != first[run] for run in first)
    tables = pd.read_parquet(project.folder / "results/small/fat/tables/runs.parquet")
    assert sorted(tables["run"]) == sorted(first)


@pytest.mark.slow
def test_a_finished_job_that_is_queued_again_keeps_its_record(project: Project, cluster: Cluster):
    """A run that is forced is made again all the same."""
    # No figures yet: SLURM forgets a job that ended five minutes ago.
    assert project.snakemake("--until", "train") == 0, project.said
    before = records(project)
    ((job, log),) = re.findall(r"SLURM jobid (\d+) \(log: (\S*/rule_train/\S*)\)", project.log)
    # The plugin removes logs of jobs that ended well. Where SLURM cannot open its log, a job fails
    # before it begins.
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    cluster.ask("scontrol", "requeue", job)
    until(lambda: "Restarts=1" in cluster.ask("scontrol", "show", "job", job), 30)
    until(lambda: "JobState=COMPLETED" in cluster.ask("scontrol", "show", "job", job), 90)
    assert records(project) == before
    assert project.snakemake() == 0, project.said
    assert records(project) == before
    assert project.snakemake("--forcerun", "train") == 0, project.said
    ((run, (_, log)),) = records(project).items()
    assert before[run][1] != log


@pytest.mark.slow
def test_code_that_is_edited_while_a_job_waits_harms_no_record(project: Project, cluster: Cluster):
    """Jobs look at rerun triggers themselves: Snakemake's issue 3234."""
    project.study("small", {"workers": [1], "global_batch": [512], "repeats": 2})
    process = project.start("--jobs", "1")
    until(lambda: project.runs(), 300)
    before = records(project)
    rule = project.folder / "workflow/rules/train.smk"
    rule.write_text(
        rule.read_text().replace('"python -m ddlbench.run ', '"true; python -m ddlbench.run ')
    )
    for name in ("analysis/collect.py", "train/loop.py"):
        with (project.folder / "workflow/ddlbench" / name).open("a") as file:
            file.write("# edited\n")
    assert ended(process, 300) == 0, project.said
    after = records(project)
    assert len(after) == 2
    assert {run: after[run] for run in before} == before
    assert list(submitted(project).values()) == [1, 1]


@pytest.mark.slow
def test_a_recipe_that_is_edited_while_a_job_waits_mixes_nothing(
    project: Project, cluster: Cluster
):
    """The job makes what it finds; the plan that has another recipe does not collect it; the next
    call makes all.
    """
    project.study("small", {"workers": [1], "global_batch": [512], "repeats": 2})
    process = project.start("--jobs", "1")
    until(lambda: project.runs(), 300)
    before = records(project)
    base_lr(project, 0.02)
    ended(process, 300)
    after = records(project)
    assert {run: after[run] for run in before} == before
    assert len(after) == 2
    assert "has other settings than this study's plan" in project.said
    assert len(pd.read_parquet(project.folder / "results/small/fat/tables/runs.parquet")) == 1
    assert project.snakemake() == 0, project.said
    assert rates(project) == {0.02}
    assert len(pd.read_parquet(project.folder / "results/small/fat/tables/runs.parquet")) == 2
