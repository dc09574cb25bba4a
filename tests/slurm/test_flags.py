"""Flags of a machine's file reach SLURM as they are written, whatever their characters; a shell
executes none.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm.conftest import Cluster, Project
from tests.slurm.stand_in import stand_in

HOSTILE = [
    "--mail-user=$(touch {0}) `touch {0}`; touch {0} & \"a\" 'b' \\ é | > {0} #",
    "--mail-type=STAGE_OUT",
]


@pytest.mark.slow
def test_flags_reach_slurm_as_they_are(project: Project, cluster: Cluster, tmp_path: Path):
    """In a job of one rank, and in one whose ranks srun starts, which is given them too."""
    harm = tmp_path / "harm"
    flags = [flag.format(harm) for flag in HOSTILE]
    stand_in(project.folder)
    project.machine("fat", slurm_flags=flags)
    project.study("small", {"workers": [1, 2], "global_batch": [512]})
    for target in (["preflight", "--force"], ["--until", "train"]):
        assert project.snakemake(*target) == 0, project.said
    logs = "".join(path.read_text() for path in project.folder.glob(".snakemake/log/*.log"))
    jobs = re.findall(r"SLURM jobid (\d+)", logs)
    assert len(jobs) == 3
    for job in jobs:
        assert f"MailUser={flags[0].partition('=')[2]} MailType=" in cluster.ask(
            "scontrol", "show", "job", job
        )
    assert not harm.exists()
    for refused in (
        f"--comment=$(touch {harm})",
        "--wrap=rm",
        "-Ca100&b",
        "--arr=1-9",
        "--mail-user=a\nb",
    ):
        project.machine("fat", slurm_flags=[refused])
        command = [
            sys.executable,
            "-m",
            "ddlbench.commands.main",
            "plan",
            "--study",
            "small",
            "--machine",
            "fat",
        ]
        environment = os.environ | {"PYTHONPATH": str(project.folder / "workflow")}
        done = subprocess.run(
            command, cwd=project.folder, env=environment, capture_output=True, text=True
        )
        assert (
            done.returncode and "slurm_flags" in done.stderr and "Traceback" not in done.stderr
        ), done.stderr
    assert not harm.exists()
