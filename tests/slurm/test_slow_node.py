"""One node of four is slow. The records name it, and jobs keep off it once it is excluded."""

import os
from collections.abc import Iterator

import pandas as pd
import pytest
from ddlbench.core.mllog import read_log

from tests.slurm.conftest import Cluster, Project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.access("/sys/fs/cgroup/freezer", os.W_OK),
        reason="nodes are made slow by cgroups of version 1",
    ),
]
SLOW = "node3"
ONE = {"workers_per_node": 1}


@pytest.fixture
def project(project: Project) -> Project:
    """Nodes share this machine's cores: one that has a fifth less than the others has it by
    chance.
    """
    code = project.folder / "workflow/ddlbench/analysis/outliers.py"
    assert "\nSHARE = 0.1\n" in code.read_text()
    code.write_text(code.read_text().replace("\nSHARE = 0.1\n", "\nSHARE = 0.4\n"))
    return project


@pytest.fixture
def slowed(cluster: Cluster, project: Project) -> Iterator[Project]:
    """What runs on node3 is frozen for three quarters of the time."""
    cluster("slow", SLOW, "25")
    yield project
    cluster.empty()
    cluster("up")


def test_jobs_keep_off_excluded_nodes(project: Project) -> None:
    project.machine("one", **ONE, nodes=3, exclude_nodes=[SLOW])
    project.study("small", {"workers": [3], "batch_per_worker": [64]})
    assert project.snakemake("--retries", "0", machine="one") == 0, project.said
    hosts = set()
    for folder in project.runs():
        (ranks,) = [
            event.value for event in read_log(folder / "run.mllog") if event.key == "ddlbench_ranks"
        ]
        hosts |= {rank["host"] for rank in ranks}
        assert all(rank["topology"].endswith(f".{rank['host']}") for rank in ranks)
        assert {rank["topology_pattern"] for rank in ranks} == {"switch.switch.node"}
    assert hosts == {"node1", "node2", "node4"}


def test_the_records_name_it(slowed: Project) -> None:
    project = slowed
    project.machine("one", **ONE)
    project.study("small", {"workers": [4], "batch_per_worker": [32]}, epochs=4, repeats=2)
    assert project.snakemake("--jobs", "2", "--until", "train", machine="one") == 0, project.said
    assert project.snakemake("--jobs", "2", "--until", "train", machine="one") == 0, project.said
    assert len(project.runs()) == 2
    answer = project.ask("nodes", machine="one")
    table = pd.read_csv(project.folder / "results/machines/one/nodes.csv").set_index(
        ["host", "part"]
    )
    found = table.loc[(SLOW, "compute")]
    assert (found["verdict"], found["runs"]) == ("hardware", 2), answer
    # Its loader is slow as well.
    assert {host for host, _ in table.index[table["verdict"] == "hardware"]} == {SLOW}, project.said
