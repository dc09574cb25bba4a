"""Faults in which Snakemake and SLURM would wait without a word, or give no reason."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.slurm.conftest import Cluster, Project, ended, until

pytestmark = pytest.mark.slow


def test_a_held_job_is_called_held(project: Project, cluster: Cluster):
    """By its administrator and by its user; the partition is down so that it does not start
    meanwhile.
    """
    cluster.ask("scontrol", "update", "partitionname=booster", "state=DOWN")
    try:
        process = project.start()
        (job,) = until(cluster.jobs, 200)
        until(lambda: f"SLURM job {job} will not start (PartitionDown)" in project.said, 200)
        cluster.ask("scontrol", "uhold", job)
        cluster.ask("scontrol", "update", "partitionname=booster", "state=UP")
        process.kill()
        process.wait()
        process = project.start()
        until(
            lambda: (
                f"{job} pending: " in project.said and "it is held (JobHeldUser)" in project.said
            ),
            200,
        )
        assert f"scontrol release {job}" in project.said
        cluster.ask("scontrol", "release", job)
        assert ended(process, 400) == 0, project.said
    finally:
        cluster.ask("scontrol", "update", "partitionname=booster", "state=UP")


@contextmanager
def no_python(cluster: Cluster) -> Iterator[None]:
    """Within, nodes do not see the virtual environment; this machine does."""
    run = Path(cluster.environment["SLURM_CONF"]).parents[1] / "run"
    spaces = [
        f"--mount=/proc/{(run / f'node{n}.pid').read_text().strip()}/ns/mnt" for n in range(1, 5)
    ]
    for space in spaces:
        subprocess.run(["nsenter", space, "mount", "-t", "tmpfs", "none", sys.prefix], check=True)
    try:
        yield
    finally:
        for space in spaces:
            subprocess.run(["nsenter", space, "umount", sys.prefix], check=True)


def test_python_is_not_there_on_a_node(project: Project, cluster: Cluster):
    """An earlier try left a log, which says nothing of this one."""
    assert project.snakemake("preflight") == 0, project.said
    assert project.snakemake("-np") == 0, project.said
    run = re.search(r"train (\S*lenet\S*-r1)", project.said)
    assert run, project.said
    old = project.folder / "results/runs" / run[1] / "train.log"
    old.parent.mkdir(parents=True)
    old.write_text("an earlier try\n")
    os.utime(
        old, (time.time() - 60,) * 2
    )  # one that is a second older than the job may be the job's: clocks differ
    with no_python(cluster):
        assert project.snakemake("--retries", "0") != 0
    line, *_ = [
        line for line in project.said.splitlines() if "It ended before its run began" in line
    ] or [project.said]
    assert re.search(r"began, on node\d: \S.*/python", line)
    assert "does this exist on that node?" in line
    assert re.search(r"Its log is \S*rule_train\S*/\d+\.log\.", line)
    assert line.index("Its log is") < line.index("train.log is of an earlier attempt")


def test_a_site_without_accounting(project: Project, cluster: Cluster, another):
    """Found out before the first job is submitted; a job that fails is seen too."""
    another(ACCOUNTING="none")
    (project.folder / "workflow/ddlbench/train/frameworks/faulty.py").write_text(
        '"""DDP, but no rank ever starts."""\nfrom ddlbench.train.frameworks.ddp import *\n\n\n'
        'def start(device):\n    raise SystemExit("no such fabric")\n'
    )
    project.study("small", {"workers": [1], "global_batch": [512], "frameworks": ["ddp", "faulty"]})
    process = project.start("--retries", "0")
    until(lambda: "the states of jobs are taken from squeue" in project.said, 200)
    assert ended(process, 400) != 0
    assert ["ddp" in run.name for run in project.runs()] == [True]
    assert "SLURM status is: 'FAILED'" in project.log
