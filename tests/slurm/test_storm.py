"""One call of Snakemake, to whose jobs a lot happens: each gets over it in its own way, and the
others go on.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.slurm.conftest import (
    Cluster,
    Project,
    ended,
    make_project,
    stop,
    submitted,
    training,
    until,
)
from tests.slurm.undisturbed import assert_as_undisturbed, events

pytestmark = pytest.mark.more

FAULTY = '''
"""DDP, but no rank ever starts."""
from ddlbench.train.frameworks.ddp import *

def start(device):
    raise SystemExit("no such fabric")
'''
SLEEPY = '''
"""DDP, but ranks sleep until they are cancelled."""
import time
from ddlbench.train.frameworks.ddp import *

def start(device):
    time.sleep(600)
'''
BLOCKS = {
    "digits": {"workers": [1], "global_batch": [512], "frameworks": ["ddp", "faulty", "sleepy"]},
    "loses-its-node": {"workers": [1], "global_batch": [256], "epochs": 6},
    "warned": {"workers": [2], "global_batch": [128], "epochs": 4},
}


@dataclass(frozen=True)
class Storm:
    """What it left, and the ids of the jobs that were cancelled."""

    project: Project
    cancelled: list[str]

    def run(self, part: str) -> Path:
        """The folder of the run with this in its name."""
        (folder,) = self.project.folder.glob(f"results/runs/*{part}*")
        return folder

    def times_submitted(self, part: str) -> int:
        return submitted(self.project)[self.run(part).name]


@pytest.fixture(scope="module")
def storm(
    started: Cluster, prepared: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Storm]:
    project = make_project(tmp_path_factory.mktemp("storm") / "project", started, prepared)
    for name, text in (("faulty", FAULTY), ("sleepy", SLEEPY)):
        (project.folder / f"workflow/ddlbench/train/frameworks/{name}.py").write_text(text)
    # A node has the memory for one of these ranks: none shares its node with the one that dies.
    project.machine(
        "thin", workers_per_node=1, memory_mb_per_worker=20_000, images_per_s={"lenet": 1000}
    )
    project.study("small", runs=BLOCKS)
    brake = project.brake(0.5)  # trouble comes before a run ends
    try:
        process = project.start("--retries", "1", machine="thin")
        cancelled = make_trouble(project, started)
        brake.unlink()
        assert ended(process, 300) != 0, project.said
        yield Storm(project, cancelled)
    finally:
        stop(project)
        started("up")
        started.empty()


def make_trouble(project: Project, cluster: Cluster) -> list[str]:
    """To each run what is to happen to it, as soon as it trains. Returns the ids of the jobs that
    were cancelled.
    """
    lost = warned = ""
    gone = back = False
    cancelled: list[str] = []

    def all_done() -> bool:
        nonlocal lost, warned, gone, back
        assert project.started[-1].poll() is None, project.said
        if not lost and training(project, "-bs256-"):
            lost = cluster.running("-bs256-") or ""
            cluster("crash", cluster.ask("squeue", "-h", "-j", lost, "-o", "%N").strip())
        if lost and not gone:  # has SLURM seen it?
            gone = lost not in cluster.jobs("RUNNING")
        elif gone and not back and (lost in cluster.jobs("RUNNING") or lost not in cluster.jobs()):
            # Only now: SLURM may send the dead node's last orders to a node that is back, and end
            # the same job there.
            cluster("up")
            back = True
        if not warned and training(project, "-bs128-"):
            warned = cluster.running("-bs128-") or ""
            cluster.ask(
                "scancel", "--signal=USR1", warned
            )  # as `--signal` does at the limit: to the job's steps
        sleepy = cluster.running("-sleepy-")
        if sleepy and sleepy not in cancelled:
            cluster.ask("scancel", sleepy)
            cancelled.append(sleepy)
        return back and bool(warned) and len(cancelled) == 2

    until(all_done, 600)
    return cancelled


def test_a_job_that_fails_is_tried_again_with_more_time_and_others_go_on(storm: Storm):
    project = storm.project
    assert ["ddp" in run.name for run in project.runs()] == [True] * 3, project.said
    failed = storm.run("-faulty-")
    assert (failed / "failed").is_dir()
    assert "no such fabric" in (failed / "train.log").read_text()
    assert str((failed / "train.log").relative_to(project.folder)) in project.said
    assert storm.times_submitted("-faulty-") == 2, project.said
    assert storm.times_submitted("-ddp-*-bs512-") == 1, project.said
    assert sorted(re.findall(r"faulty\S*: .* limit (\d+) min", project.log)) == ["30", "60"]


def test_a_cancelled_job_is_tried_again_and_reported(storm: Storm):
    """sacct says `CANCELLED by <uid>`."""
    for job in storm.cancelled:
        assert f"SLURM-job '{job}' failed, SLURM status is: 'CANCELLED'" in storm.project.log
    assert storm.times_submitted("-sleepy-") == 2


def test_a_node_dies_and_its_run_is_made_again(storm: Storm):
    assert (storm.run("-bs256-") / "run.mllog").is_file(), storm.project.said
    # SLURM queued it again, not Snakemake.
    assert storm.times_submitted("-bs256-") == 1, storm.project.said


def test_a_run_is_warned_and_goes_on(storm: Storm, tmp_path: Path):
    """Two ranks on two nodes: they write a checkpoint, are submitted again, and go on from
    there.
    """
    folder = storm.run("-bs128-")
    assert storm.times_submitted("-bs128-") == 2, storm.project.said
    (resumed,) = events(folder, "ddlbench_resumed")
    assert resumed["step"] > 0
    assert len({rank["host"] for rank in events(folder, "ddlbench_ranks")[-1]}) == 2
    assert_as_undisturbed(folder, storm.project.folder / "results/data/mnist5k", tmp_path)
