"""Jobs of inference on a cluster: ranks on two nodes, a job that is cancelled, a rank that dies;
what is said of it.
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ddlbench.core import notes
from ddlbench.train.inference_record import FAILED, PARTIAL, RECORD

from tests.slurm.conftest import Cluster, Project, ended, submitted, until

TABLE = "results/small/thin/tables/inference.parquet"
# Ranks wait before they answer, as long as this file is there.
BRAKE = """
import time
from pathlib import Path


def _braked(model, count=weights_bytes):
    while Path({file!r}).exists():
        time.sleep(0.2)
    return count(model)


weights_bytes = _braked
"""


def asking(project: Project, member: str, ranks: int) -> tuple[Path, dict[int, Any]]:
    """The folder of the job that serves in this way, and what its ranks said of themselves, once
    all wait.
    """

    def all_there() -> list[tuple[Path, dict[int, Any]]]:
        assert project.started[-1].poll() is None, project.said
        folders = project.folder.glob(f"results/inference/*-{member}-*/{PARTIAL}")
        known = [(folder.parent, notes.read(folder, "rank")) for folder in folders]
        return [
            (folder, who)
            for folder, who in known
            if len(who) == ranks and (folder / PARTIAL / "beat-0").exists()
        ]

    ((folder, who),) = until(all_there, 120)
    return folder, who


@pytest.mark.slow
def test_jobs_of_inference_that_end_badly_are_listed_and_made_again(
    project: Project, cluster: Cluster
):
    """One is cancelled, of another a rank is killed; the ranks of the latter are on two nodes."""
    asked = {
        "runs": "digits",
        "weights": "initial",
        "members": ["plain", "tensor-slicing"],
        "batches": [1, 8],
    }
    project.study("small", inference=asked)
    brake = project.folder / "brake"
    brake.touch()
    with (project.folder / "workflow/ddlbench/train/inference/_measure.py").open("a") as code:
        code.write(BRAKE.format(file=str(brake)))
    process = project.start(TABLE, "--jobs", "2", "--retries", "0", machine="thin")
    plain, _ = asking(project, "plain", 1)
    sliced, ranks = asking(project, "tensor-slicing", 2)
    assert ranks[0]["host"] != ranks[1]["host"]
    jobs = {folder: cluster.running(folder.name) for folder in (plain, sliced)}
    cluster.ask("scancel", str(jobs[plain]))
    os.kill(ranks[1]["pid"], signal.SIGKILL)
    assert ended(process, 300) != 0
    assert f"rank 1 was killed (Killed) (on {ranks[1]['host']})" in project.said
    assert "2 failed jobs of inference; all of them: ddlbench failures" in project.said
    project.ask("failures", machine="thin")
    table = pd.read_csv(
        project.folder / "results/small/thin/tables/failures.csv", dtype=str
    ).set_index("run")
    assert set(table.index) == {plain.name, sliced.name}
    assert set(table["rule"]) == {"infer"}
    for folder, job in jobs.items():
        assert table.loc[folder.name, "slurm_job_id"] == job
        assert (project.folder / table.loc[folder.name, "log"]).is_file()
    told = table.loc[sliced.name, ["cause", "rank", "host"]].tolist()
    assert told == ["killed", "1", ranks[1]["host"]]
    assert "SLURM" in table.loc[plain.name, "message"]

    process = project.start(TABLE, "--jobs", "2", "--retries", "1", machine="thin")
    asking(project, "tensor-slicing", 2)
    asking(project, "plain", 1)
    cluster.ask("scancel", str(cluster.running(plain.name)))
    until(lambda: (plain / FAILED).exists() and submitted(project)[plain.name] == 3, 120)
    brake.unlink()
    assert ended(process, 300) == 0, project.said
    assert submitted(project) == {plain.name: 3, sliced.name: 2}
    for folder, workers in ((plain, 1), (sliced, 2)):
        record = json.loads((folder / RECORD).read_text())
        assert (record["spec"]["workers"], record["reason"], record["other_answers"]) == (
            workers,
            None,
            0,
        )
        assert not (folder / FAILED).exists()
    assert len(pd.read_parquet(project.folder / TABLE)) == 4
    assert "0 failed runs" in project.ask("failures", machine="thin")
