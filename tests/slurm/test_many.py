"""Many short jobs of which one in ten fails: all records are there in the end, each made once."""

import re
from itertools import pairwise

import pytest

from tests.slurm.conftest import Project, submitted
from tests.slurm.stand_in import fails_first, stand_in

pytestmark = pytest.mark.more


@pytest.mark.parametrize("count", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_all_records_are_there_each_once(project: Project, count: int):
    stand_in(project.folder)
    project.machine(
        "fat", workers_per_node=1
    )  # nodes have sixteen cores: by the file, each run fills its node
    project.study("small", {"workers": [1], "global_batch": [512], "repeats": count})
    # Of this study the preflight is there: Snakemake's --until does not look beyond a checkpoint
    # still to be made.
    assert project.snakemake("--until", "train", timeout_s=3000) == 0, project.said
    runs = project.runs()
    failing = [run.name for run in runs if fails_first(run.name)]
    assert len(runs) == count
    assert 0 < len(failing) < count
    assert all(
        (run / "made").read_text() == "0\n" and (run / "steps.parquet").is_file() for run in runs
    )
    tries = {run: times for run, times in submitted(project).items() if "lenet" in run}
    assert tries == {run.name: 1 + fails_first(run.name) for run in runs}
    assert shared(project) == []


def shared(project: Project) -> list[tuple[str, ...]]:
    """Pairs of training jobs that were on one node at one time, by SLURM's accounts; there is room
    for more.
    """
    jobs = re.findall(r"SLURM jobid (\d+) \(log: \S*/rule_train/", project.log)
    said = project.cluster.ask(
        "sacct", "-nXP", "-S", "now-1hours", "-j", ",".join(jobs), "-o", "NodeList,Start,End,JobID"
    )
    lines = sorted(tuple(line.split("|")) for line in said.split())  # times sort as text
    assert len(lines) == len(jobs)
    return [
        (*one, *other) for one, other in pairwise(lines) if one[0] == other[0] and other[1] < one[2]
    ]
