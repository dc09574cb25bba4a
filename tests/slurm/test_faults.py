"""What goes wrong on clusters, made to go wrong on a real one: what is said, what is made again, what is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.slurm.conftest import ACCOUNT, Cluster, Project, until

LONG = 15  # epochs; half a minute and more
FAULTY = '''
"""DDP, but no rank ever starts."""
from ddlbench.frameworks.ddp import *

def start(device):
    raise SystemExit("no such fabric")
'''


def running(project: Project, count: int = 1) -> list[Path]:
    """Logs of runs that train, once there are so many."""

    def training() -> list[Path]:
        logs = project.folder.glob("results/runs/*/.partial/run.mllog")
        return [log for log in logs if "epoch_stop" in log.read_text()]

    return until(lambda: (logs := training()) and len(logs) >= count and logs, 300)


def submitted(project: Project) -> Counter[str]:
    """How often Snakemake submitted each rule's jobs, over all its calls in this project."""
    logs = [path.read_text() for path in project.folder.glob(".snakemake/log/*.log")]
    return Counter(re.findall(r"SLURM jobid \d+ \(log: \S*/rule_\w+/([\w.-]+)/", "".join(logs)))


def test_a_job_that_fails_is_tried_again_with_more_time_and_others_go_on(project: Project, cluster: Cluster):
    (project.folder / "workflow/ddlbench/frameworks/faulty.py").write_text(FAULTY)
    project.machine("fat", images_per_s={"lenet": 1000})
    project.study("small", {"workers": [1], "global_batch": [512], "frameworks": ["ddp", "faulty"]})
    assert project.snakemake("--retries", "1") != 0
    assert ["ddp" in run.name for run in project.runs()] == [True]
    (failed,) = project.folder.glob("results/runs/*faulty*/failed")
    assert "no such fabric" in (failed.parent / "train.log").read_text()
    assert str(failed.parent.relative_to(project.folder) / "train.log") in project.said
    assert sorted(submitted(project).values()) == [1, 2]
    assert sorted(re.findall(r"faulty\S*: .* limit (\d+) min", project.said)) == ["30", "60"]


def test_too_little_memory_is_said(project: Project):
    """More than the job's own Snakemake needs, less than a rank does. With cgroups the state is OUT_OF_MEMORY too."""
    project.machine("fat", memory_mb_per_worker=450)
    assert project.snakemake("--retries", "0") != 0
    (log,) = project.folder.glob("results/runs/*/train.log")
    assert "exceeded memory limit" in log.read_text()
    assert str(log.relative_to(project.folder)) in project.said
    assert project.runs() == []


def test_a_node_dies_and_its_run_is_made_again(project: Project, cluster: Cluster):
    project.study("small", epochs=LONG)
    process = project.start()
    running(project)
    node = cluster.ask("squeue", "-h", "-o", "%N").strip()
    cluster("crash", node)
    until(lambda: not cluster.jobs("RUNNING"), 60)  # SLURM has seen it
    assert process.wait(timeout=300) == 0, project.said
    assert len(project.runs()) == 1
    assert list(submitted(project).values()) == [1]  # SLURM queued it again, not Snakemake


@pytest.mark.slow
def test_a_run_gives_way_and_is_made_again(project: Project, cluster: Cluster):
    """And stays in the queue as long as the other job has all nodes, which is longer than between two status checks."""
    project.machine("fat", partitions=[{"name": "scavenge", "max_nodes": 4, "max_minutes": 60}])
    project.study("small", epochs=LONG)
    process = project.start()
    running(project)
    cluster.ask("srun", "--partition=booster", f"--account={ACCOUNT}", "--nodes=4", "--exclusive", "sleep", "40")
    assert process.wait(timeout=300) == 0, project.said
    assert len(project.runs()) == 1
    assert list(submitted(project).values()) == [1]


@pytest.mark.slow
def test_controller_and_accounting_go_away_for_a_while(project: Project, cluster: Cluster):
    """The run ends while accounting does not answer, so that nobody can ask how."""
    project.study("small", epochs=LONG // 2)
    process = project.start()
    running(project)
    cluster("stop", "slurmdbd")
    cluster("stop", "slurmctld")
    cluster("start", "slurmctld")
    until(lambda: project.runs() and not cluster.jobs(), 120)
    assert process.poll() is None
    time.sleep(60 if os.environ.get("DDLBENCH_SLOW") == "1" else 0)
    assert process.poll() is None
    cluster("start", "slurmdbd")
    assert process.wait(timeout=120) == 0, project.said
    assert list(submitted(project).values()) == [1]


def test_what_slurm_refuses_is_said_and_other_jobs_go_on(project: Project):
    """Of one study: a partition that is not there, more time than is given, more nodes than there are."""
    booster = {"name": "booster", "max_nodes": 2, "max_minutes": 60}  # the preflight's, too
    nowhere = {"name": "nowhere", "max_nodes": 4, "max_minutes": 60}
    wide = {"name": "booster", "max_nodes": 8, "max_minutes": 9999}  # the cluster has four nodes, for a day
    speed = {"lenet": 1000, "resnet18": 0.001}
    project.machine("mixed", nodes=8, partitions=[booster, nowhere, wide], images_per_s=speed)
    project.study("mixed", {"workers": [1, 8, 16], "global_batch": [512], "models": ["lenet", "resnet18"]})
    assert project.snakemake("--retries", "0", machine="mixed", study="mixed") != 0
    for message in (
        "invalid partition specified: nowhere",
        "Requested time limit is invalid",
        "Node count specification invalid",
    ):
        assert message in project.said
    assert ["lenet" in run.name and "-1workers-" in run.name for run in project.runs()] == [True]


def test_what_slurm_refuses_of_a_whole_machine_is_said(project: Project):
    booster = {"name": "booster", "max_nodes": 4, "max_minutes": 60}
    project.machine("gpus", device="cuda", workers_per_node=8, partitions=[booster])  # nodes have four
    for machine, account, message in (
        ("fat", "nobody", "The given account nobody appears to be invalid"),
        ("gpus", ACCOUNT, "Requested node configuration is not available"),
    ):
        project.study(machine, {"workers": [8], "global_batch": [512]})
        assert project.snakemake("--retries", "0", machine=machine, study=machine, account=account) != 0
        assert message in project.said


def test_control_c_cancels_and_the_next_call_goes_on(project: Project, cluster: Cluster):
    project.study("small", {"workers": [1, 2], "global_batch": [512]}, epochs=LONG)
    process = project.start()
    running(project, 2)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) != 0
    until(lambda: not cluster.jobs(), 30)
    assert project.runs() == []
    project.study("small", {"workers": [1], "global_batch": [512]})
    assert project.snakemake() == 0, project.said
    assert "killed" not in project.said


@pytest.mark.slow
def test_sigterm_lets_running_jobs_finish_and_submits_no_more(project: Project, cluster: Cluster):
    project.study("small", {"workers": [1, 2], "global_batch": [512]}, epochs=LONG // 2)
    process = project.start("--jobs", "1")
    running(project)
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=200)
    assert "Will exit after finishing currently running jobs" in project.said
    assert len(project.runs()) == 1
    assert cluster.jobs() == []


def test_killed_while_jobs_run_and_started_again(project: Project, cluster: Cluster):
    """Both jobs are waited for, neither is submitted again, no lock is met."""
    project.study("small", {"workers": [1, 2], "global_batch": [512]}, epochs=LONG)
    process = project.start()
    running(project, 2)
    process.kill()
    process.wait()
    ids = set(cluster.jobs())
    assert len(ids) == 2
    assert project.snakemake() == 0, project.said
    assert "waiting for 2 SLURM jobs that an earlier Snakemake left" in project.said
    assert "an earlier Snakemake was killed here; its lock is removed" in project.said
    assert "these jobs have ended" in project.said
    assert len(project.runs()) == 2
    assert (project.folder / "results/small/report.html").is_file()
    assert list(submitted(project).values()) == [1, 1]


def test_a_cancelled_job_is_tried_again_and_reported(project: Project, cluster: Cluster):
    """sacct says `CANCELLED by <uid>`. The first job, which prepares data, sleeps until it is cancelled."""
    (project.folder / "workflow/ddlbench/prepare.py").write_text("import time\ntime.sleep(600)\n")
    process = project.start("--retries", "1")
    cancelled: set[str] = set()
    for _ in range(2):
        (job,) = until(lambda: set(cluster.jobs("RUNNING")) - cancelled, 90)
        cluster.ask("scancel", job)
        cancelled.add(job)
    assert process.wait(timeout=90) != 0
    for job in cancelled:
        assert f"SLURM-job '{job}' failed, SLURM status is: 'CANCELLED'" in project.said
    assert cluster.jobs() == []


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


def test_a_supervisor_sees_another_one_on_another_node(project: Project, cluster: Cluster, tmp_path: Path):
    """And takes over when SLURM says that the other's job has ended, though nothing tidied up after it."""
    folder = tmp_path / "run"
    environment = os.environ | cluster.environment | {"PYTHONPATH": str(project.folder / "workflow")}
    on = ["srun", f"--account={ACCOUNT}", "--ntasks=1"]
    program = [sys.executable, "-c", HOLD, str(folder)]
    first = subprocess.Popen([*on, "--nodelist=node1", *program, "60"], env=environment, stdout=subprocess.PIPE)
    assert first.stdout is not None and first.stdout.readline() == b"held\n"
    (job,) = cluster.jobs("RUNNING")
    second = [*on, "--nodelist=node2", *program, "0"]
    refused = subprocess.run(second, env=environment, capture_output=True, text=True)
    assert refused.returncode != 0
    assert re.search(rf"{folder} is being made by process \d+ on node1, SLURM job {job}", refused.stderr)
    cluster.ask("scancel", "--signal=KILL", job)
    first.wait(timeout=30)
    assert (folder / ".holder.json").is_file()
    until(lambda: not cluster.jobs(), 30)
    taken = subprocess.run(second, env=environment, capture_output=True, text=True)
    assert taken.returncode == 0, taken.stderr
    assert list(folder.iterdir()) == []
