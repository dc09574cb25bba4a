"""Ranks on one node and on two: every framework reduces gradients between all, and trains what it trains here."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest
from ddlbench.record import read_log
from ddlbench.spec import RunSpec

from tests.contract import launches
from tests.contract.launches import FRAMEWORKS
from tests.slurm.conftest import Project


def value(folder, key):
    (found,) = [event.value for event in read_log(folder / "run.mllog") if event.key == key]
    return found


def losses(folder) -> list[float]:
    """The loss of each step: the sum over ranks."""
    return pd.read_parquet(folder / "steps.parquet").groupby("step")["loss"].sum().tolist()


@pytest.mark.parametrize(
    "one_node", [("ddp",), pytest.param(FRAMEWORKS, marks=pytest.mark.slow)], ids=["quick", "whole"]
)
def test_every_framework_on_one_node_and_on_two(project: Project, tmp_path, one_node):
    """2 nodes x 2 ranks of every framework; 1 x 1, 1 x 2 (machine fat) and 2 x 1 (thin) of `one_node`'s.

    Against each number of ranks of DDP, started on this machine without SLURM.
    """
    of = {"global_batch": [512], "frameworks": list(one_node)}
    few, four = of | {"workers": [1, 2]}, of | {"workers": [4], "frameworks": list(FRAMEWORKS)}
    project.study("small", runs={"digits": few, "four": four})
    project.study("two", of | {"workers": [2]})
    assert project.snakemake("--jobs", "4", timeout_s=1200) == 0, project.said
    assert project.snakemake("--jobs", "4", machine="thin", study="two") == 0, project.said
    folders = project.runs()
    shapes = set()
    here: dict[int, list[float]] = {}
    for folder in folders:
        spec = RunSpec.from_json(json.dumps(value(folder, "ddlbench_spec")))
        ranks = value(folder, "ddlbench_ranks")
        hosts = [rank["host"] for rank in ranks]
        assert len(ranks) == len({rank["pid"] for rank in ranks}) == spec.workers
        assert all(host.startswith("node") for host in hosts)
        assert all(hosts.count(host) == spec.workers_per_node for host in hosts), hosts
        assert "srun" in value(folder, "ddlbench_facts")["command"]
        assert set(pd.read_parquet(folder / "steps.parquet")["rank"]) == set(range(spec.workers))
        shapes.add((spec.framework, len(set(hosts)), spec.workers_per_node))
        if spec.workers not in here:
            alone = tmp_path / "here" / spec.id
            done = launches.execute(
                replace(spec, framework="ddp"),
                alone,
                project.folder / "results/data/mnist5k",
                program=("python", "-m", "ddlbench.rank"),
            )
            assert done.code == 0, done.output
            here[spec.workers] = losses(alone)
        assert losses(folder) == pytest.approx(here[spec.workers], rel=1e-5)
    assert shapes == {(f, 2, 2) for f in FRAMEWORKS} | {(f, *s) for f in one_node for s in ((1, 1), (1, 2), (2, 1))}
    assert len(folders) == len(shapes)
    assert (project.folder / "results/small/report.html").is_file()
