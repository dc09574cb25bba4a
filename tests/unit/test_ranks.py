"""Who a rank is, by its launcher; what the supervisor tells it, and when a run goes on from an
earlier try.
"""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from ddlbench.core.record import FLOPS, FLOPS_COUNTED
from ddlbench.core.step_rows import STEP_COLUMNS
from ddlbench.run import training as supervisor
from ddlbench.slurm import step
from ddlbench.train import checkpoint, place
from ddlbench.train.assignment import FILE, Assignment
from ddlbench.train.frameworks import horovod

from tests.builders.plans import run_spec
from tests.facts import missing
from tests.kills import killed_at

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
    for name in (*step.variables(SRUN, "node1"), step.TASK):
        monkeypatch.setenv(name, "")  # so that it is as before when the test is over
        monkeypatch.delenv(name)


def test_srun_variables_are_translated() -> None:
    said = step.variables(SRUN, "node1i")
    horovods = horovod.variables(SRUN | said)
    assert said["RANK"] == horovods["HOROVOD_RANK"] == "5"
    assert said["WORLD_SIZE"] == horovods["HOROVOD_SIZE"] == "8"
    assert said["LOCAL_RANK"] == horovods["HOROVOD_LOCAL_RANK"] == "1"
    assert said["LOCAL_WORLD_SIZE"] == horovods["HOROVOD_LOCAL_SIZE"] == "4"
    assert (horovods["HOROVOD_CROSS_RANK"], horovods["HOROVOD_CROSS_SIZE"]) == ("1", "2")
    assert said["MASTER_ADDR"] == horovods["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "node1i"
    assert horovods["HOROVOD_HOSTNAME"] == "node2"
    assert int(horovods["HOROVOD_GLOO_RENDEZVOUS_PORT"]) == int(said["MASTER_PORT"]) + 1
    # Two jobs on one node must not meet on one port, nor on that of the other's rendezvous.
    next_job = step.variables(SRUN | {"SLURM_JOB_ID": "40008"}, "n")
    assert int(next_job["MASTER_PORT"]) == int(said["MASTER_PORT"]) + 2


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node1", "node1"),
        ("node[1-2]", "node1"),
        ("jwb[0009-0012,0100],login1", "jwb0009"),
        ("gpu-a,gpu-b[1-3]", "gpu-a"),
        ("r[3,5-6]c[10-12]-ib", "r3c10-ib"),
        ("n7[01-02].cluster.edu,n8", "n701.cluster.edu"),
    ],
)
def test_the_first_node_is_read_of_slurms_list(
    monkeypatch: pytest.MonkeyPatch, nodes: str, first: str
) -> None:
    """Without SLURM's commands: images have none."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("SLURM_NNODES", "2")
    monkeypatch.setenv("SLURM_JOB_NODELIST", nodes)
    monkeypatch.setenv("DDLBENCH_HOST_SUFFIX", "i")
    assert step.first_host() == f"{first}i"


def test_each_rank_of_two_nodes_is_told_its_node_and_its_place_there() -> None:
    for rank in range(8):
        e = SRUN | {
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank % 4),
            "SLURM_NODEID": str(rank // 4),
        }
        horovods = horovod.variables(e | step.variables(e, "node1"))
        told = [horovods[f"HOROVOD_{name}"] for name in ("RANK", "LOCAL_RANK", "CROSS_RANK")]
        assert told == [str(rank), str(rank % 4), str(rank // 4)]


def test_a_rank_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert place.rank_number() == 1
    assert place.own_rank(2) == place.Rank(1, 2, 1)


def test_sruns_words_go_before_what_a_users_shell_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (SRUN | {"RANK": "0", "SLURM_NNODES": "1"}).items():
        monkeypatch.setenv(name, value)
    assert place.rank_number() == 5
    assert place.own_rank(8) == place.own_rank(8) == place.Rank(5, 8, 1)


def test_another_world_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(place.WorldError, match=r"expected 2 ranks.* 1$"):
        place.own_rank(2)


def test_no_launcher_is_said() -> None:
    with pytest.raises(place.WorldError, match="RANK nor SLURM_PROCID"):
        place.own_rank(1)


@pytest.mark.parametrize(
    ("local_rank", "visible", "named", "takes"),
    [
        (3, 1, "3", [0]),
        (3, 4, "0,1,2,3", [3]),
        (3, 8, None, [3]),
        (3, 3, "0,1,2", []),
        (1, 1, None, []),
    ],
)
def test_a_rank_takes_its_own_gpu_of_those_that_it_sees(
    monkeypatch: pytest.MonkeyPatch,
    local_rank: int,
    visible: int,
    named: str | None,
    takes: list[int],
) -> None:
    """psslurm shows a rank one GPU, SLURM all of them. It takes no other rank's, and two do not
    share the only one.
    """
    taken: list[int] = []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    monkeypatch.setattr("torch.cuda.device_count", lambda: visible)
    monkeypatch.setattr("torch.cuda.set_device", taken.append)
    said = rf"number {local_rank} .* sees {visible} \(CUDA_VISIBLE_DEVICES: {named or 'not set'}\)"
    with nullcontext() if takes else pytest.raises(place.WorldError, match=said):
        place.take_device(local_rank)
    assert taken == takes


SPEC = run_spec(machine="local", options=(("bucket_mb", 5), ("name", [1, {"a": None}])))
DATA = Path("results/data/mnist5k/raw")
ORIGIN = {
    "host": "here",
    "commit": "earlier",
    "python": "3.11.2",
    "container": None,
    "data_sha256": "one",
    "versions": {"ddlbench": "0.2", "torch": "2.13.0"},
}


def leave(folder: Path, spec: object = SPEC, data: Path | None = DATA) -> None:
    """An earlier try with a checkpoint."""
    folder.mkdir(parents=True)
    Assignment(folder, spec, data, ORIGIN, None, 30.0).write()  # type: ignore[arg-type]
    (folder / "failure-1.json").write_text("{}")
    (folder / checkpoint.FOLDER / "000000007").mkdir(parents=True)
    about = {"format": checkpoint.FORMAT, "step_columns": [*STEP_COLUMNS], "step": 7}
    (folder / checkpoint.FOLDER / "000000007" / checkpoint.SUMMARY).write_text(
        json.dumps(about | {"sha256": checkpoint._digest(about)})
    )


def test_ranks_read_what_the_supervisor_wrote(tmp_path: Path) -> None:
    told = Assignment(tmp_path, SPEC, None, {"host": "here"}, 2, None, keep_weights=True)
    told.write()
    assert Assignment.read(tmp_path) == told


@pytest.mark.parametrize("name", [".partial", "failed"])
def test_the_same_run_goes_on_from_its_checkpoint(tmp_path: Path, name: str) -> None:
    """Also where the supervisor is killed before it goes on."""

    def prepare() -> Path | None:
        return supervisor._prepare_folder(tmp_path, tmp_path / ".partial", SPEC, DATA, ORIGIN)

    measured_once = {FLOPS, FLOPS_COUNTED}
    leave(tmp_path / name)
    for file in ("rank-0.json", *measured_once):
        (tmp_path / name / file).touch()
    assert sum(killed_at(call, prepare) for call in (1, 2, 3, 4)) > 0
    assert prepare() == tmp_path / ".partial" / checkpoint.FOLDER / "000000007"
    left = {path.name for path in (tmp_path / ".partial").iterdir()}
    assert left == {checkpoint.FOLDER, FILE, *measured_once}


@pytest.mark.parametrize(
    "content", [None, "", "{", "{}", "[]", json.dumps({"spec": {}, "data": None})]
)
def test_what_cannot_be_read_is_not_gone_on_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    """What is there and cut off is said, in one line."""
    leave(tmp_path / ".partial")
    if content is None:
        (tmp_path / ".partial" / FILE).unlink()
    else:
        (tmp_path / ".partial" / FILE).write_text(content)
    assert supervisor._prepare_folder(tmp_path, tmp_path / ".partial", SPEC, DATA, ORIGIN) is None
    assert list((tmp_path / ".partial").iterdir()) == []
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in said] == [f"{tmp_path}/.partial/{FILE}"] * (
        content is not None
    )


def test_a_key_that_the_run_does_not_use_loses_no_checkpoint(tmp_path: Path) -> None:
    assert SPEC.schedule != "exponential"
    leave(tmp_path / ".partial", replace(SPEC, recipe=replace(SPEC.recipe, gamma=0.123)), DATA)
    assert supervisor._prepare_folder(tmp_path, tmp_path / ".partial", SPEC, DATA, ORIGIN)


def test_another_run_or_other_data_begin_anew(tmp_path: Path) -> None:
    for number, (spec, data) in enumerate(
        ((replace(SPEC, epochs=9), DATA), (SPEC, Path("elsewhere")), (SPEC, None))
    ):
        folder = tmp_path / str(number)
        leave(folder / ".partial", spec, data)
        assert supervisor._prepare_folder(folder, folder / ".partial", SPEC, DATA, ORIGIN) is None


@pytest.mark.parametrize(
    ("now", "goes_on"),
    [
        ({"host": "elsewhere", "commit": "later"}, True),
        ({"versions": {"ddlbench": "9.9", "torch": "2.13.0"}}, True),
        ({"versions": {"ddlbench": "0.2", "torch": "2.14.0"}}, False),
        ({"data_sha256": "other"}, False),
        ({"python": "3.12.1"}, False),
    ],
)
def test_a_run_goes_on_with_the_software_and_the_data_with_which_it_began(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], now: dict[str, object], goes_on: bool
) -> None:
    leave(tmp_path / "failed")
    saved = supervisor._prepare_folder(tmp_path, tmp_path / ".partial", SPEC, DATA, ORIGIN | now)
    assert (saved is not None) is goes_on
    said = capsys.readouterr().out
    for name, value in now.items():
        if not goes_on:
            new = value["torch"] if isinstance(value, dict) else value
            assert missing(said, "torch" if name == "versions" else name, str(new)) == []
    assert goes_on or said.count("\n") == 1
