"""Ranks on one node and on two: every framework reduces gradients between all, and trains what it
trains here.
"""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from ddlbench.core.spec import RunSpec

from tests.conftest import SLOW
from tests.contract import launches
from tests.contract.launches import FRAMEWORKS
from tests.pretended_gpu import build
from tests.slurm.conftest import MACHINE, Project
from tests.slurm.undisturbed import events, losses

# What a rank does when it has taken its GPU.
COMPUTES = """
if "PRETENDED_GPUS" in os.environ:
    from tests.pretended_gpu import say_gpu
    say_gpu()
_take = take_device
def take_device(local_rank):
    from tests.pretended_gpu.compute import Computing
    _take(local_rank)
    Computing().__enter__()
"""


def only(folder, key):
    (value,) = events(folder, key)
    return value


def trained(project: Project, tmp_path: Path) -> set[tuple[str, int, int]]:
    """(framework, nodes, ranks of a node) of the runs, which have the losses of CPUs without SLURM
    under DDP.
    """
    shapes = set()
    here: dict[int, list[float]] = {}
    for folder in project.runs():
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
            alone, data = tmp_path / "here" / spec.id, project.folder / "results/data/mnist5k"
            plain = replace(spec, framework="ddp", device="cpu")
            done = launches.execute(plain, alone, data, program=("python", "-m", "ddlbench.train"))
            assert done.code == 0, done.output
            here[spec.workers] = losses(alone)
        assert losses(folder) == pytest.approx(here[spec.workers], rel=1e-5)
    return shapes


@pytest.mark.more
def test_every_framework_on_one_node_and_on_two(project: Project, tmp_path):
    """2 nodes x 2 ranks; among the slow tests 1 x 1, 1 x 2 (machine wide) and 2 x 1 (thin) too.

    Against each number of ranks of DDP, started on this machine without SLURM.
    """
    whole = SLOW
    of = {"global_batch": [512], "frameworks": list(FRAMEWORKS)}
    project.machine("wide")  # `fat`, of which no preflight is there
    project.study("small", of | {"workers": [1, 2, 4] if whole else [4]})
    assert project.snakemake("preflight", machine="wide") == 0, (
        project.said
    )  # else --until does not see rule train
    arguments = ("--jobs", "4", "--until", "train")
    assert project.snakemake(*arguments, machine="wide", timeout_s=1200) == 0, project.said
    if whole:
        project.study("two", of | {"workers": [2]})
        assert project.snakemake("--jobs", "4", machine="thin", study="two") == 0, project.said
    shapes = trained(project, tmp_path)
    expected = ((2, 2), (1, 1), (1, 2), (2, 1)) if whole else ((2, 2),)
    assert shapes == {(framework, *shape) for framework in FRAMEWORKS for shape in expected}
    assert len(project.runs()) == len(shapes)


@pytest.mark.slow
@pytest.mark.parametrize(("per_node", "frameworks"), [(1, ["ddp"]), (2, FRAMEWORKS), (4, ["ddp"])])
def test_pretended_gpus_of_two_nodes(
    project: Project, another, once, tmp_path, per_node, frameworks
):
    """Each rank sees one of its own, as psslurm has it, by its number or its UUID."""
    if reason := build.lacks():
        pytest.skip(reason)
    prolog = tmp_path / "prolog"
    named = "GPU-fa4e0001-0203-0405-0607-08090a0b0c0" if per_node == 2 else ""
    prolog.write_text(
        f"#!/bin/sh\necho export CUDA_VISIBLE_DEVICES={named}$SLURM_LOCALID\n"
    )  # SLURM sets it so
    prolog.chmod(0o755)
    another(EXTRA=f"TaskProlog={prolog}")
    with (project.folder / "workflow/ddlbench/train/place.py").open("a") as code:
        code.write(COMPUTES)
    environment = MACHINE["environment"] | build.environment(once("pretended-gpu", build.build), 4)
    project.machine(
        "gpus", device="cuda", device_name="GPU", workers_per_node=per_node, environment=environment
    )
    project.study(
        "small", {"global_batch": [512], "frameworks": [*frameworks], "workers": [2 * per_node]}
    )
    assert project.snakemake("preflight", machine="gpus") == 0, project.said
    assert project.snakemake("--until", "train", machine="gpus", timeout_s=1200) == 0, project.said
    assert trained(project, tmp_path) == {(framework, 2, per_node) for framework in frameworks}
