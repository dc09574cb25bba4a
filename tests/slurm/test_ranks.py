"""Ranks on one node and on two: every framework reduces gradients between all, and trains what it trains here."""

import json
from dataclasses import replace

import pandas as pd
import pytest
from ddlbench.core.spec import RunSpec

from tests.contract import launches
from tests.contract.launches import FRAMEWORKS
from tests.slurm.conftest import Project
from tests.slurm.undisturbed import events, losses


def only(folder, key):
    (value,) = events(folder, key)
    return value


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["quick", "whole"])
def test_every_framework_on_one_node_and_on_two(project: Project, tmp_path, whole):
    """2 nodes x 2 ranks; `whole` does 1 x 1, 1 x 2 (machine wide) and 2 x 1 (thin) too.

    Against each number of ranks of DDP, started on this machine without SLURM.
    """
    of = {"global_batch": [512], "frameworks": list(FRAMEWORKS)}
    project.machine("wide")  # `fat`, of which no preflight is there
    project.study("small", of | {"workers": [1, 2, 4] if whole else [4]})
    assert project.snakemake("preflight", machine="wide") == 0, project.said  # else --until does not see rule train
    arguments = ("--jobs", "4", "--until", "train")
    assert project.snakemake(*arguments, machine="wide", timeout_s=1200) == 0, project.said
    if whole:
        project.study("two", of | {"workers": [2]})
        assert project.snakemake("--jobs", "4", machine="thin", study="two") == 0, project.said
    folders = project.runs()
    shapes = set()
    here: dict[int, list[float]] = {}
    for folder in folders:
        spec = RunSpec.from_json(json.dumps(only(folder, "ddlbench_spec")))
        ranks = only(folder, "ddlbench_ranks")
        hosts = [rank["host"] for rank in ranks]
        assert len(ranks) == len({rank["pid"] for rank in ranks}) == spec.workers
        assert all(host.startswith("node") for host in hosts)
        assert all(hosts.count(host) == spec.workers_per_node for host in hosts), hosts
        assert "srun" in only(folder, "ddlbench_facts")["command"]
        assert set(pd.read_parquet(folder / "steps.parquet")["rank"]) == set(range(spec.workers))
        shapes.add((spec.framework, len(set(hosts)), spec.workers_per_node))
        if spec.workers not in here:
            alone = tmp_path / "here" / spec.id
            done = launches.execute(
                replace(spec, framework="ddp"),
                alone,
                project.folder / "results/data/mnist5k",
                program=("python", "-m", "ddlbench.train"),
            )
            assert done.code == 0, done.output
            here[spec.workers] = losses(alone)
        assert losses(folder) == pytest.approx(here[spec.workers], rel=1e-5)
    expected = ((2, 2), (1, 1), (1, 2), (2, 1)) if whole else ((2, 2),)
    assert shapes == {(framework, *shape) for framework in FRAMEWORKS for shape in expected}
    assert len(folders) == len(shapes)
