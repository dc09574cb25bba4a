"""What goes wrong on clusters, made to go wrong on a real one: what is said, what is made again,
what is left.

Faults that leave Snakemake running are in test_storm.py, many in one call; those of Snakemake
itself are in test_interrupted.py.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.slurm.conftest import ACCOUNT, Cluster, Project, ended, running, submitted, until

pytestmark = pytest.mark.more

LONG = 15  # epochs; half a minute and more


def test_too_little_memory_is_said(project: Project):
    """More than the job's own Snakemake needs, less than a rank does. With cgroups the state is
    OUT_OF_MEMORY too.
    """
    project.machine("fat", memory_mb_per_worker=620)
    assert project.snakemake("--retries", "0", "--until", "train") != 0
    (log,) = project.folder.glob("results/runs/*/train.log")
    assert "exceeded memory limit" in log.read_text()
    assert str(log.relative_to(project.folder)) in project.said
    assert project.runs() == []


@pytest.mark.slow
def test_a_run_gives_way_and_is_made_again(project: Project, cluster: Cluster):
    """And stays in the queue as long as the other job has all nodes, which is several status checks
    long.
    """
    project.machine("fat", partitions=[{"name": "scavenge", "max_nodes": 4, "max_minutes": 60}])
    project.study("small", epochs=LONG)
    brake = project.brake(0.3)  # it still trains when the other job comes
    process = project.start()
    running(project)
    (job,) = cluster.jobs("RUNNING")
    cluster.ask(
        "srun",
        "--partition=booster",
        f"--account={ACCOUNT}",
        "--nodes=4",
        "--exclusive",
        "sleep",
        "10",
    )
    assert "Restarts=1" in cluster.ask("scontrol", "show", "job", job)
    brake.unlink()
    assert ended(process, 300) == 0, project.said
    assert len(project.runs()) == 1
    assert list(submitted(project).values()) == [1]


@pytest.mark.slow
def test_controller_and_accounting_go_away_for_a_while(project: Project, cluster: Cluster):
    """The run ends while accounting does not answer, so that nobody can ask how."""
    project.study("small", epochs=LONG // 2)
    brake = project.brake(0.3)
    process = project.start("--until", "train")
    running(project)
    cluster("stop", "slurmdbd")
    cluster("stop", "slurmctld")
    cluster("start", "slurmctld")
    brake.unlink()
    until(lambda: project.runs() and not cluster.jobs(), 120)
    assert process.poll() is None, project.said
    time.sleep(60)
    assert process.poll() is None, project.said
    cluster("start", "slurmdbd")
    assert ended(process, 120) == 0, project.said
    assert list(submitted(project).values()) == [1]


def test_what_slurm_refuses_is_said_and_other_jobs_go_on(project: Project):
    """Of one study: a partition that is not there, more time than is given, more nodes than there
    are.
    """
    booster = {"name": "booster", "max_nodes": 2, "max_minutes": 60}  # the preflight's, too
    nowhere = {"name": "nowhere", "max_nodes": 4, "max_minutes": 60}
    wide = {
        "name": "booster",
        "max_nodes": 8,
        "max_minutes": 9999,
    }  # the cluster has four nodes, for a day
    speed = {"lenet": 1000, "resnet18@32": 0.001}
    project.machine(
        "mixed",
        nodes=8,
        workers_per_node=1,  # a preflight of four ranks did not end in time on a busy machine
        partitions=[booster, nowhere, wide],
        images_per_s=speed,
        start_timeout_s=300,
    )
    project.study(
        "mixed", {"workers": [1, 4, 8], "global_batch": [512], "models": ["lenet", "resnet18"]}
    )
    assert project.snakemake("--retries", "0", machine="mixed", study="mixed") != 0
    for message in (
        "invalid partition specified: nowhere",
        "Requested time limit is invalid",
        "Node count specification invalid",
    ):
        assert message in project.said
        assert message in project.ask("failures", "mixed", "mixed")
    assert "; partitions: name, in the machine's file" in project.said
    assert "sbatch call" not in project.said
    assert ["lenet" in run.name and "-1workers-" in run.name for run in project.runs()] == [True]


def test_what_slurm_refuses_of_a_whole_machine_is_said(project: Project):
    booster = {"name": "booster", "max_nodes": 4, "max_minutes": 60}
    project.machine(
        "gpus", device="cuda", workers_per_node=8, partitions=[booster]
    )  # nodes have four
    for machine, account, message in (
        ("fat", "nobody", "The given account nobody appears to be invalid"),
        ("gpus", ACCOUNT, "Requested node configuration is not available"),
    ):
        project.study(machine, {"workers": [8], "global_batch": [512]})
        assert (
            project.snakemake("--retries", "0", machine=machine, study=machine, account=account)
            != 0
        )
        assert message in project.said


HOLD = """
import sys, time
from pathlib import Path
from ddlbench.run.hold import HeldError, held
try:
    with held(Path(sys.argv[1])):
        print("held", flush=True)
        time.sleep(float(sys.argv[2]))
except HeldError as error:
    sys.exit(str(error))
"""


def test_a_supervisor_sees_another_one_on_another_node(
    project: Project, cluster: Cluster, tmp_path: Path
):
    """And takes over when SLURM says that the other's job has ended, though nothing tidied up after
    it.
    """
    folder = tmp_path / "run"
    environment = (
        os.environ | cluster.environment | {"PYTHONPATH": str(project.folder / "workflow")}
    )
    on = ["srun", f"--account={ACCOUNT}", "--ntasks=1"]
    program = [sys.executable, "-c", HOLD, str(folder)]
    first = subprocess.Popen(
        [*on, "--nodelist=node1", *program, "3600"], env=environment, stdout=subprocess.PIPE
    )
    assert first.stdout is not None and first.stdout.readline() == b"held\n"
    (job,) = cluster.jobs("RUNNING")
    second = [*on, "--nodelist=node2", *program, "0"]
    refused = subprocess.run(second, env=environment, capture_output=True, text=True)
    assert refused.returncode != 0
    assert re.search(
        rf"{folder} is being made by process \d+ on node1, SLURM job {job}", refused.stderr
    )
    cluster.ask("scancel", "--signal=KILL", job)
    ended(first, 30)
    assert (folder / ".holder.json").is_file()
    until(lambda: not cluster.jobs(), 30)
    taken = subprocess.run(second, env=environment, capture_output=True, text=True)
    assert taken.returncode == 0, taken.stderr
    assert list(folder.iterdir()) == []
