"""Who a rank is, by what its launcher set."""

import pytest
from ddlbench.frameworks import horovod
from ddlbench.rank import place

SRUN = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_NNODES": "2",
    "SLURM_NODEID": "1",
    "SLURM_JOB_ID": "40007",
    "SLURMD_NODENAME": "node2",
}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = [name for names in place.LAUNCHERS for name in names]
    for name in (*mine, "SLURM_PROCID", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


def test_srun_variables_are_translated() -> None:
    said = place.slurm_variables(SRUN, "node1i")
    horovods = horovod.variables(SRUN | said)
    assert said["RANK"] == horovods["HOROVOD_RANK"] == "5"
    assert said["WORLD_SIZE"] == horovods["HOROVOD_SIZE"] == "8"
    assert said["LOCAL_RANK"] == horovods["HOROVOD_LOCAL_RANK"] == "1"
    assert said["LOCAL_WORLD_SIZE"] == horovods["HOROVOD_LOCAL_SIZE"] == "4"
    assert (horovods["HOROVOD_CROSS_RANK"], horovods["HOROVOD_CROSS_SIZE"]) == ("1", "2")
    assert said["MASTER_ADDR"] == horovods["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "node1i"
    assert horovods["HOROVOD_HOSTNAME"] == "node2"
    assert int(horovods["HOROVOD_GLOO_RENDEZVOUS_PORT"]) == int(said["MASTER_PORT"]) + 1
    # Two jobs on one node must not meet on one port.
    assert place.slurm_variables(SRUN | {"SLURM_JOB_ID": "40008"}, "n")["MASTER_PORT"] != said["MASTER_PORT"]


def test_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert place.here(2) == place.Rank(1, 2, 1)


def test_mpirun_within_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher's own words go before SLURM's, which say of all its ranks that they are the job's first."""
    said = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    for name, value in (SRUN | {"SLURM_PROCID": "0"} | said).items():
        monkeypatch.setenv(name, value)
    assert place.number() == 1
    assert place.here(2) == place.Rank(1, 2, 1)


def test_another_world_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "1", "HOROVOD_LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(place.WorldError, match="promised 2 workers and finds 1"):
        place.here(2)


def test_no_launcher_is_said() -> None:
    with pytest.raises(place.WorldError, match="no launcher"):
        place.here(1)
