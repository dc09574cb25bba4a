"""What is finished, or trains, is kept: on a full disk, from another clone, from a job that is
submitted once more.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import copy_project
from tests.disks import fill, small_disk
from tests.slurm.conftest import ACCOUNT, Cluster, Project, ended, running, stop, submitted, until
from tests.slurm.test_recovery import base_lr, rates
from tests.workflow.test_late import KILLS

# No record is joined while the file is there.
WAITS = """

def join_steps(*arguments, join=join_steps):
    while Path({file!r}).exists():
        time.sleep(0.1)
    join(*arguments)
"""


def files(run: Path) -> dict[str, bytes]:
    """What lies in a run's folder, but for what jobs that were refused said."""
    return {
        path.name: path.read_bytes()
        for path in run.iterdir()
        if path.is_file() and "refused-" not in path.name
    }


@pytest.mark.slow
def test_the_disk_is_full_when_training_is_over(project: Project, cluster: Cluster, another):
    runs, wait = project.folder / "results/runs", project.folder / "wait"
    wait.touch()
    with (project.folder / "workflow/ddlbench/run/finish.py").open("a") as code:
        code.write(WAITS.format(file=str(wait)))
    runs.mkdir(exist_ok=True)
    with small_disk(runs, "16m"):
        another()  # its nodes see the disk
        process = project.start("--retries", "0", "--until", "train")
        # Its ranks have ended, and no room is kept for them any more.
        until(
            lambda: (
                [*runs.glob("*/.partial/ended-0.json")]
                and not [*runs.glob("*/.partial/.reserve-ranks")]
            ),
            300,
        )
        filler = fill(runs)
        wait.unlink()
        assert ended(process, 300) != 0
        (run,) = (path for path in runs.iterdir() if path.is_dir())
        for said in (project.said, project.ask("failures", "fat")):
            assert re.search(
                rf"{run.name}: .*No space left on device.*disk space.*not trained again", said
            ), said
        assert not {"run.mllog", "steps.parquet"} & {path.name for path in run.iterdir()}
        until(lambda: not cluster.jobs(), 60)
        filler.unlink()
        assert project.snakemake("--until", "train") == 0, project.said
        assert "was trained to its end by an earlier call" in (run / "train.log").read_text()
        assert (project.runs(), submitted(project)) == ([run], {run.name: 2})


@pytest.mark.slow
def test_two_jobs_of_one_run(project: Project, cluster: Cluster, tmp_path: Path):
    """Of another clone with the same `results/`, and of a script that is submitted by hand, early
    and late.
    """
    clone = Project(copy_project(tmp_path / "clone"), cluster)
    clone.machine("fat")
    (clone.folder / "results/README.md").unlink()
    (clone.folder / "results").rmdir()
    (clone.folder / "results").symlink_to(project.folder / "results")
    for one in (project, clone):
        one.study("small", {"workers": [1], "global_batch": [512]}, epochs=30)  # of eight steps
    brake = project.brake(1)
    process = project.start("--until", "train")
    try:
        (log,) = running(project)
        run = log.parents[1]
        (job,) = cluster.jobs("RUNNING")
        script = tmp_path / "job.sh"
        cluster.ask("scontrol", "write", "batch_script", job, str(script))

        def submit() -> str:
            """What jobs with the same script said in the run's folder, once another one has
            ended.
            """
            options = [
                f"--account={ACCOUNT}",
                f"--chdir={project.folder}",
                f"--output={tmp_path}/%j.log",
                "--wait",
            ]
            subprocess.run(
                ["sbatch", *options, script], env=os.environ | cluster.environment, timeout=600
            )
            return "".join(path.read_text() for path in run.glob("refused-*.log"))

        said = (run / "train.log").read_bytes()
        assert "is being made by process" in submit()
        assert clone.snakemake("--retries", "0", "--until", "train") != 0
        assert "is being made by process" in clone.said
        assert (run / "train.log").read_bytes().startswith(said)
        brake.unlink()
        assert ended(process, 300) == 0, project.said
        before = files(run)
        submit()  # what its Snakemake left for it is gone: it ends before it begins
        assert clone.snakemake("--until", "train") == 0, clone.said
        assert files(run) == before
        assert submitted(project)[run.name] == 1
    finally:
        stop(clone)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["login node", "node"])
def test_a_record_that_a_killed_snakemake_did_not_note_is_kept(
    project: Project, cluster: Cluster, where: str
):
    """Of another recipe than the one that Snakemake remembers; on the node it is the Snakemake
    within the job.
    """
    assert project.snakemake("--until", "train") == 0, project.said
    base_lr(project, 0.02)
    finish = project.folder / "workflow/ddlbench/run/finish.py"
    code = finish.read_text()
    finish.write_text(code + KILLS.replace("profiles/local", "--target-jobs") * (where == "node"))
    process = project.start("--retries", "0", "--until", "train")
    if where == "login node":
        until(lambda: rates(project) == {0.02}, 300, every_s=0.05)
        process.kill()
    assert ended(process, 300) == (1 if where == "node" else -9), project.said
    until(lambda: not cluster.jobs(), 120)  # what is left of the job writes the run's summary
    finish.write_text(code)
    (run,) = project.runs()
    before = files(run)
    assert project.snakemake("--until", "train", "-n") == 0, project.said
    assert project.snakemake("--until", "train") == 0, project.said
    assert (files(run), rates(project), submitted(project)) == (before, {0.02}, {run.name: 2}), (
        project.said
    )
