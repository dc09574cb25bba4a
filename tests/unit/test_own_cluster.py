"""What the tests themselves need: clusters of SLURM that are apart, and what is made once for
all.
"""

import re
import subprocess
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from ddlbench.slurm import step

from tests.conftest import Once
from tests.facts import refuses
from tests.slurm import conftest
from tests.slurm.conftest import CLUSTERS, PORT, SCRIPT, own_cluster


def test_each_has_a_folder_and_ports_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "STATE", str(tmp_path / "state"))
    with own_cluster() as first:
        with ExitStack() as others:
            all_of_them = [first, *(others.enter_context(own_cluster()) for _ in CLUSTERS[1:])]
            states = {cluster.place["DDLBENCH_SLURM_STATE"] for cluster in all_of_them}
            assert states == {f"{tmp_path}/state{ending}" for ending in CLUSTERS}
            ports = sorted(int(cluster.place["DDLBENCH_SLURM_PORT"]) for cluster in all_of_them)
            assert {later - port for port, later in pairwise(ports)} == {10}
            assert {cluster.environment["SLURM_CONF"] for cluster in all_of_them} == {
                f"{state}/etc/slurm.conf" for state in states
            }
            with refuses(pytest.fail.Exception, "6 clusters"), own_cluster():
                pass
        with own_cluster() as freed:
            assert freed.place["DDLBENCH_SLURM_STATE"].endswith("state-2")


def test_ranks_of_jobs_on_different_clusters_meet_at_different_ports() -> None:
    """They follow from the job's id, and clusters of one machine share its network."""
    (line,) = re.findall(r"^FIRST_JOB=.*$", SCRIPT.read_text(), re.MULTILINE)
    (count,) = re.findall(
        r"^MaxJobId=\$\(\(FIRST_JOB \+ (\d+)\)\)$", SCRIPT.read_text(), re.MULTILINE
    )
    task = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0"}
    seen: set[str] = set()
    for number in range(len(CLUSTERS)):
        command = f"PORT={PORT + 10 * number}; {line}; echo $FIRST_JOB"
        first = int(
            subprocess.run(
                ["bash", "-c", command], capture_output=True, text=True, check=True
            ).stdout
        )
        jobs = range(first, first + int(count) + 1)
        ports = {
            step.variables(task | {"SLURM_JOB_ID": str(job)}, "n")["MASTER_PORT"] for job in jobs
        }
        assert len(ports) == len(jobs)
        assert not ports & seen
        seen |= ports


def test_it_is_made_once(once: Once) -> None:
    calls = []
    folders = {once("made", lambda folder: calls.append(folder)) for _ in range(2)}
    assert list(folders) == calls
    assert calls[0].is_dir()


def test_it_fails_once(once: Once) -> None:
    calls = []

    def fail(folder: Path) -> None:
        calls.append(folder)
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        once("fails", fail)
    with refuses(pytest.fail.Exception, "fails", "OSError: no room"):
        once("fails", fail)
    assert len(calls) == 1
