"""The way for nodes without GPUs that docs/clusters.md begins with, from a machine's new file to
the page.
"""

import os
import re
import subprocess
import sys

import pytest
import yaml

from tests.slurm.conftest import Cluster, Project

# What a person sets there; the nodes of this cluster have pretended GPUs, of which SLURM tells.
SET = {
    "device": "cpu",
    "device_name": "core",
    "workers_per_node": 2,
    "cores_per_worker": 1,
    "loader_threads": 1,
    "environment": {"GLOO_SOCKET_IFNAME": "lo"},
    "data": "results/data",
}


@pytest.mark.slow
def test_from_a_machines_new_file_to_the_page(project: Project, cluster: Cluster):
    """Six runs of one epoch in place of eighteen of eight; those of four workers fill two nodes."""

    def new(*words: str) -> None:
        environment = (
            os.environ | cluster.environment | {"PYTHONPATH": str(project.folder / "workflow")}
        )
        command = [sys.executable, "-m", "ddlbench.commands.main", "new", *words]
        subprocess.run(command, cwd=project.folder, env=environment, check=True)

    new("machine", "mine")
    machine = project.folder / "config/machines/mine.yaml"
    project.write("machines", "mine", **(yaml.safe_load(machine.read_text()) | SET))
    new("study", "first", "--model", "resnet8_half", "--frameworks", "ddp", "--workers", "1,4")
    study = project.folder / "config/studies/first.yaml"
    study.write_text(re.sub(r"(?m)^epochs: \d+", "epochs: 1", study.read_text()))
    assert "6 runs are guessed" in project.ask("plan", machine="mine", study="first")
    assert project.snakemake(machine="mine", study="first", timeout_s=1800) == 0, project.said
    assert len(project.runs()) == 6
    assert (project.folder / "results/first/mine/index.html").is_file()
