"""Sites that are not ours: narrow limits, no arrays, no home folders on nodes, a banner; no job is
left behind.
"""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.facts import missing
from tests.slurm.conftest import Cluster, Project, ended, submitted, until
from tests.slurm.stand_in import fails_first, stand_in

NODES = ["node1", "node2", "node3", "node4"]
NARROW = (
    "MaxArraySize=0\nPartitionName=short Nodes=ALL MaxTime=5 DefaultTime=5 PriorityTier=10"
    " PreemptMode=OFF"
)
BANNER = """#!/bin/sh
echo "Welcome to 4 nodes; quota 17 of 20 (since 2026-11-01)"
exec {sbatch} "$@"
"""


def narrow(project: Project) -> None:
    """A machine whose only partition gives less than the preflight's ten minutes."""
    project.machine("fat", partitions=[{"name": "short", "max_nodes": 4, "max_minutes": 5}])


@pytest.mark.more
def test_no_ranks_are_started_from_a_login_node(project: Project) -> None:
    """Without a profile that submits jobs srun would ask for nodes by itself."""
    project.study("small")
    shutil.rmtree(project.folder / "results/machines")
    assert project.snakemake("--executor", "local", "--cores", "1") != 0
    assert missing(project.said, "fat.yaml", "slurm", "--profile profiles/slurm") == []
    assert not (project.folder / "results/machines").exists()


@pytest.mark.slow
def test_a_site_with_narrow_limits(
    project: Project, cluster: Cluster, another, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Two jobs at once (MaxSubmitJobs), no arrays, five minutes, a banner, no home folder on nodes,
    `$` in a path.
    """
    folder = project.folder.rename(tmp_path / "pro$ject")
    project.folder = folder
    home, programs = tmp_path / "home", tmp_path / "bin"
    for made in (home, programs):
        made.mkdir()
    sbatch = programs / "sbatch"
    sbatch.write_text(BANNER.format(sbatch=shutil.which("sbatch")))
    sbatch.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    another(EXTRA=NARROW)
    narrow(project)
    shutil.rmtree(folder / "results/machines")  # the preflight too is to be made there
    stand_in(folder)
    project.study("small", {"workers": [1], "global_batch": [512], "repeats": 5})
    with cluster.hidden(home, NODES), cluster.limited("MaxSubmitJobs=2"):
        assert project.snakemake("preflight") == 0, project.said
        said = (folder / "results/machines/fat/preflight-small.json").read_text()
        assert (
            "workers_per_node x cores_per_worker: 2 x 1 of 16 cores; the others stay idle in timed"
            " runs" in said
        )
        assert project.snakemake("--until", "train", timeout_s=600) == 0, project.said
    runs = project.runs()
    assert len(runs) == 5
    assert "SLURM takes no more jobs for now (AssocMaxSubmitJobLimit: at most 2)" in project.said
    tries = {run: times for run, times in submitted(project).items() if "lenet" in run}
    assert tries == {run.name: 1 + fails_first(run.name) for run in runs}


@pytest.mark.slow
def test_ctrl_c_leaves_no_job_that_waits_for_room(project: Project, cluster: Cluster):
    project.study("small", {"workers": [1], "global_batch": [512], "repeats": 4})
    with cluster.limited("MaxSubmitJobs=1"):
        process = project.start()
        until(lambda: "SLURM takes no more jobs for now" in project.said, 120)
        process.send_signal(signal.SIGINT)
        assert ended(process, 120) != 0
        until(lambda: not cluster.jobs(), 60)
    time.sleep(15)  # longer than the next try would have taken
    assert cluster.jobs() == [], project.said
    assert project.runs() == []


@pytest.mark.slow
def test_a_limit_that_never_ends_is_named(project: Project, cluster: Cluster):
    with cluster.limited("MaxTRESPerJob=cpu=1"):
        process = project.start()
        until(lambda: "will not start (AssocMaxCpuPerJobLimit)" in project.said, 120)
        process.send_signal(signal.SIGINT)
        ended(process, 120)
        until(lambda: not cluster.jobs(), 60)


@pytest.mark.slow
def test_a_node_that_does_not_see_the_project_is_named(project: Project, cluster: Cluster):
    """Of a job, and of the preflight of two nodes."""
    stand_in(project.folder)
    project.machine("fat", exclude_nodes=NODES[1:])
    with cluster.hidden(project.folder, ["node1"]):
        assert project.snakemake("--retries", "0", "--until", "train") != 0
    assert (
        f"on node1: that node does not see {project.folder}, or may not write there" in project.said
    )
    project.machine("thin", workers_per_node=1, exclude_nodes=NODES[2:])
    project.study("small", {"workers": [2], "global_batch": [512]})
    with cluster.hidden(project.folder, ["node2"]):
        assert project.snakemake("preflight", "--retries", "0", machine="thin") != 0
    # srun ends the other rank, too, which may have reported by then.
    alone, first = "no report from ranks 1 (on node2)", "rank 1 on node2 exited"
    assert f"preflight: {alone}" in project.said or f"preflight: {first}" in project.said
    assert "do not see this folder" in project.said
