"""What a preflight makes of what ranks found; facts are those of eight ranks on two nodes with four
GPUs each.
"""

import copy
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from ddlbench.core import living
from ddlbench.plan.runs import make_plan
from ddlbench.plan.values import Plan
from ddlbench.preflight import judge, promise
from ddlbench.preflight.__main__ import summary
from ddlbench.settings.machine import Partition, load_machine
from ddlbench.settings.study import load_study
from ddlbench.slurm import squeue

from tests.builders.machines import JUWELS
from tests.conftest import ROOT, until
from tests.facts import missing

Facts = list[dict[str, Any]]
LOCAL = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}


@pytest.fixture
def ranks(promised: dict[str, Any]) -> Facts:
    """All is well."""
    return [
        {
            "rank": rank,
            "host": f"node{1 + rank // 4}",
            "local_rank": rank % 4,
            "world": 8,
            "met": ["node1"] * 4 + ["node2"] * 4,
            "python": "3.11.7",
            "versions": dict.fromkeys(promised["versions"], "2.13.0"),
            "lacks": [],
            "elsewhere": [],
            "modules": {"LOADEDMODULES": "Stages/2025:GCC/13.3.0:OpenMPI/5.0.5:Python/3.12.3"},
            "cores": list(range(rank % 4 * 12, rank % 4 * 12 + 12)),
            "interfaces": ["lo", "eth0", "ib0"],
            "free_bytes": {"results": 10**12, "data": 10**13},
            "gpus": ["NVIDIA A100-SXM4-40GB"] * 4,
            "gpu": {
                "name": "NVIDIA A100-SXM4-40GB",
                "memory_bytes": 40 << 30,
                "uuid": f"GPU-{rank}",
            },
            "cuda": "12.6",
            "all_reduce": {"gloo": {"sum": 8.0, "bytes": 1 << 24, "seconds": 0.01}},
            "clocks": {"node2": {"offset_s": 0.0004, "uncertainty_s": 0.0001, "trips": 101}}
            if rank == 0
            else {},
            "read": [],
            "doing": None,
        }
        for rank in range(8)
    ]


def test_two_whole_nodes_are_tried(paper: Plan, promised: dict[str, Any]) -> None:
    assert promise.preflight_ranks(paper) == promise.PreflightRanks(8, 4)
    assert (promised["nodes"], promised["workers"]) == (2, 8)
    asked = promise.resources(paper, "project")
    assert missing(asked["asks"], "2 nodes", "8 tasks", "8 GPUs", "10 min") == []
    launch = str(asked["launch"]).split()
    assert launch[launch.index("srun") + 1 :][:4] == [
        "--nodes=2",
        "--ntasks=8",
        "--ntasks-per-node=4",
        "--cpus-per-task=12",
    ]
    assert launch[-4:] == ["--gres=gpu:4", "python", "-m", "ddlbench.preflight.scout"]
    assert set(asked) == set(next(iter(paper.runs.values())).resources)


def test_a_queue_shorter_than_the_preflight_is_asked_for_what_it_gives(paper: Plan) -> None:
    short = replace(paper, machine=replace(JUWELS, partitions=(Partition("short", 384, 5),)))
    assert promise.resources(short, None)["runtime"] == 5


def test_a_study_of_one_node_tries_one(paper: Plan) -> None:
    small = replace(paper.study, blocks=(replace(paper.study.blocks[0], workers=(2,)),), figures=())
    assert promise.preflight_ranks(make_plan(small, JUWELS)) == promise.PreflightRanks(2, 2)


def test_one_machine_tries_two_workers_at_most() -> None:
    machine = replace(load_machine("local"), workers_per_node=16)
    of = make_plan(load_study("demo"), machine)
    assert promise.preflight_ranks(of) == promise.PreflightRanks(2, 2)
    assert str(promise.resources(of, None)["launch"]).split()[-4:] == [
        "--workers=2",
        "python",
        "-m",
        "ddlbench.preflight.scout",
    ]


@pytest.mark.parametrize(
    ("threads", "cores", "gpus", "said"),
    [
        (96, 48, 4, []),  # as the file says: 4 workers of 12 cores
        (128, 64, 4, [("4 x 12", "64 cores", "(on n1)")]),
        (48, 24, 4, []),  # its cores have two hardware threads each, and SLURM counts those
        (24, 24, 4, [("4 x 12", "more than", "24 cores")]),
        (96, 48, 8, [("workers_per_node: 4", "8 GPUs")]),
    ],
)
def test_the_machines_file_is_compared_with_slurms_nodes(
    monkeypatch: pytest.MonkeyPatch,
    threads: int,
    cores: int,
    gpus: int,
    said: list[tuple[str, ...]],
) -> None:
    """In a job of Snakemake's plugin, which has no SLURM_JOB_NODELIST."""
    line = f"n1|{threads}|2|{cores // 2}|gpu:a100:{gpus}(S:0-1),tmp:100G"
    answers = {
        (
            "squeue",
            "--noheader",
            "--jobs=7",
            f"--format={squeue.marked('%N')}",
        ): f"hi\n{squeue.marked('n[1]')}\n",
        (
            "sinfo",
            "--noheader",
            "--all",
            "--Node",
            "--nodes=n[1]",
            "--format=%N|%c|%X|%Y|%G",
        ): f"{line}\n{line}\nhi\n",
    }
    monkeypatch.setattr(squeue, "printed", lambda *command: answers[command])
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    problems = judge.judge_nodes(JUWELS, squeue.nodes_of_this_job())
    assert len(problems) == len(said) and not any(problem.error for problem in problems)
    assert [missing(problem, *facts) for facts, problem in zip(said, problems, strict=True)] == [
        []
    ] * len(said)


def test_a_machine_as_promised_has_no_problem(ranks: Facts, promised: dict[str, Any]) -> None:
    assert judge.judge(ranks, promised) == []


FILE = "config/machines/juwels-booster.yaml: "
SECOND, ALL = [4, 5, 6, 7], range(8)
HERE, THERE, EVERYWHERE = "(on node1)", "(on node2)", "(on all nodes)"
GPU = "NVIDIA A100-SXM4-40GB"
NOT_MET = (
    "do not reach each other",
    f"{FILE}environment: GLOO_SOCKET_IFNAME=ib0, NCCL_SOCKET_IFNAME=ib0, host_suffix",
)
# One thing is wrong: (what to set, in which ranks, is it an error, what the message names).
WRONG: dict[str, tuple[dict[str, Any], Iterable[int], bool, tuple[str, ...]]] = {
    "a module that did not load": (
        {"modules": {"LOADEDMODULES": "Stages/2025:GCC/13.3.0:Python/3.12.3"}},
        SECOND,
        True,
        (f"{FILE}modules: OpenMPI/5.0.5: not loaded", "module spider OpenMPI/5.0.5", THERE),
    ),
    "a package that is not there": (
        {"lacks": ["horovod"]},
        ALL,
        True,
        ("horovod is not installed", "envs/build-horovod.sh", EVERYWHERE),
    ),
    "a package of another Python": (
        {"elsewhere": ["numpy would be"]},
        SECOND,
        True,
        ("numpy would be", THERE),
    ),
    "an NCCL that was written over": (
        {"nccl": "libnccl.so.2 is not"},
        [7],
        False,
        ("libnccl.so.2 is not", THERE),
    ),
    "a framework without what GPUs need": (
        {"unable": ["without NCCL"]},
        ALL,
        True,
        ("without NCCL", EVERYWHERE),
    ),
    "threads in place of cores": (
        {"cores": [*range(6)], "hardware_threads": 12},
        [3],
        False,
        (
            f"{FILE}cores_per_worker: 12",
            "6 cores (12 hardware threads)",
            "slurm_flags: [--hint=nomultithread]",
            HERE,
        ),
    ),
    "a GPU that is missing": (
        {"gpus": [GPU] * 3, "gpu": None},
        [7],
        True,
        ("rank 3", "(3 visible)", THERE),
    ),
    "a PyTorch without CUDA": (
        {"gpus": [], "gpu": None, "cuda": None, "local_rank": 0},
        [0],
        True,
        ("rank 0", "(0 visible)", "built without CUDA", HERE),
    ),
    "an interface that is not there": (
        {"interfaces": ["lo", "eth0"]},
        SECOND,
        True,
        (
            f"{FILE}environment: GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME: ",
            "there are lo, eth0",
            THERE,
        ),
    ),
    "a full disk": (
        {"free_bytes": {"results": 1000, "data": 10**13}},
        ALL,
        True,
        ("folder results is full", EVERYWHERE),
    ),
    "a disk that is nearly full": (
        {"free_bytes": {"results": 10**9, "data": 10**13}},
        ALL,
        False,
        ("folder results is nearly full", EVERYWHERE),
    ),
    "data that a node does not see": (
        {"free_bytes": {"results": 10**12}},
        [4],
        True,
        (f"{FILE}data: folder {JUWELS.data} is not there", THERE),
    ),
    "too few cores": (
        {"cores": [0, 1, 2]},
        [1],
        False,
        (f"{FILE}cores_per_worker: 12", "3 cores", HERE),
    ),
    "another world": (
        {
            "error": "WorldError: expected 8 ranks, the launcher started 4",
            "doing": "reading its rank number and host",
        },
        [0],
        True,
        ("expected 8 ranks, the launcher started 4", HERE),
    ),
    "ranks that do not meet": (
        {
            "error": "DistNetworkError: timed out",
            "doing": "meeting the other ranks by Gloo",
            "met": None,
        },
        [4],
        True,
        (*NOT_MET, "meeting the other ranks by Gloo", "DistNetworkError: timed out", THERE),
    ),
    "a rank that hangs in NCCL": (
        {"doing": "an all-reduce by NCCL"},
        ALL,
        True,
        (*NOT_MET, "an all-reduce by NCCL", "did not answer", EVERYWHERE),
    ),
    "data that cannot be read": (
        {"error": "PermissionError: [Errno 13]", "doing": "reading prepared data"},
        [4],
        True,
        ("reading prepared data: PermissionError: [Errno 13]", THERE),
    ),
    "another GPU than promised": (
        {"gpu": {"name": "Tesla V100", "memory_bytes": 16 << 30, "uuid": "GPU-x"}},
        [0],
        True,
        (f"{FILE}gpu_name: A100", "the GPU is Tesla V100", HERE),
    ),
    "another PyTorch on a node": (
        {"versions": {"torch": "2.12.0"}},
        SECOND,
        True,
        ("torch: 2.12.0 on node2; 2.13.0 on node1",),
    ),
    "another Python on a node": (
        {"python": "3.12.1"},
        SECOND,
        True,
        ("Python: 3.11.7 on node1; 3.12.1 on node2",),
    ),
    "a clock that is off": (
        {"clocks": {"node2": {"offset_s": 2.0, "uncertainty_s": 0.001, "trips": 101}}},
        [0],
        False,
        ("clock of node2", "that of node1 by +2.000 +- 0.001 s"),
    ),
    "two ranks with one GPU": (
        {"gpu": {"name": GPU, "memory_bytes": 40 << 30, "uuid": "GPU-0"}},
        [1],
        True,
        ("4 ranks on node1 share 3 GPUs",),
    ),
    "a sum that is wrong": (
        {"all_reduce": {"nccl": {"sum": 7.0, "bytes": 1, "seconds": 1.0}}},
        [0],
        True,
        ("8 ranks by nccl gave 7.0",),
    ),
}


@pytest.mark.parametrize(("changes", "where", "error", "named"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_once(
    ranks: Facts,
    promised: dict[str, Any],
    changes: dict[str, Any],
    where: list[int],
    error: bool,
    named: tuple,
) -> None:
    for rank in where:
        for key, value in copy.deepcopy(changes).items():
            ranks[rank][key] = ranks[rank][key] | value if key == "versions" else value
    problems = judge.judge(ranks, promised)
    (said,) = [problem for problem in problems if all(part in problem.text for part in named)]
    assert said.error == error
    # Another GPU is a difference between ranks as well.
    assert len(problems) == (2 if "gpu_name" in said.text else 1), problems


def test_different_gpus_are_a_warning_where_none_is_promised(
    ranks: Facts, promised: dict[str, Any]
) -> None:
    for facts in ranks[4:]:
        facts["gpu"] |= {"name": "NVIDIA H100"}
    (problem,) = judge.judge(ranks, promised | {"gpu_name": None})
    assert not problem.error
    assert missing(problem.text, "NVIDIA A100-SXM4-40GB on node1", "NVIDIA H100 on node2") == []


def test_ranks_that_share_cores(ranks: Facts, promised: dict[str, Any]) -> None:
    for facts in ranks:
        facts["cores"] = list(range(12))
    problems = judge.judge(ranks, promised)
    assert [problem.error for problem in problems] == [False, False]
    for problem, host in zip(problems, ("node1", "node2"), strict=True):
        assert missing(problem.text, "4 ranks", host, "12 cores", 48) == []


def test_ranks_that_say_nothing(ranks: Facts, promised: dict[str, Any]) -> None:
    (unseen,) = judge.judge(ranks[:4], promised)
    assert unseen.error
    assert (
        missing(unseen.text, "ranks 4, 5, 6, 7", "on node2", "see this folder", "exclude_nodes")
        == []
    )
    for facts in ranks:
        facts |= {
            "met": None,
            "doing": "reading its rank number and host",
        }  # they waited for the others
    for allocated, where in (([], ()), (["node1", "node3"], ("on node3",))):
        (problem,) = judge.judge(ranks[:4], promised, allocated)
        assert (
            missing(problem.text, "ranks 4, 5, 6, 7", *where, "did not start", "exclude_nodes")
            == []
        )
        assert where or "(on " not in problem.text
    (none,) = judge.judge([], promised)
    assert none.error


@pytest.mark.parametrize(("launcher", "wrong"), [("slurm", True), ("namespaces", False)])
def test_ranks_on_one_host_instead_of_two(
    ranks: Facts, promised: dict[str, Any], launcher: str, wrong: bool
) -> None:
    """Nodes that are namespaces share their host's name."""
    for facts in ranks:
        facts["host"] = "node1"
    problems = [p.text for p in judge.judge(ranks, promised | {"launcher": launcher})]
    assert any(missing(text, "1 node", 2) == [] for text in problems) == wrong


def test_the_cores_of_each_rank_of_a_node_are_printed(ranks: Facts) -> None:
    ranks[3]["cores"] = [36, 38, 39, 47]
    lines = [line for line in summary(ranks) if "cores" in line]
    assert lines[0] == "rank 0 on node1: cores 0-11"
    assert lines[3:] == ["rank 3 on node1: cores 36,38-39,47"]


def preflight(promised: dict[str, Any], output: Path, script: str) -> list[str]:
    """The command line of a preflight whose launcher is a script of the shell."""
    expected = json.dumps(promised | {"machine": "local", "modules": [], "workers": 2})
    argv = [sys.executable, "-m", "ddlbench.preflight", f"--output={output}"]
    return [*argv, f"--promised={expected}", "--", "sh", "-c", script]


def test_a_rank_that_ended_before_any_could_report_is_named(
    tmp_path: Path, promised: dict[str, Any]
) -> None:
    """srun ends the others with it: it depends on who is quicker whether another rank reports."""
    output, said = (
        tmp_path / "preflight.json",
        "srun: error: node2: task 1: Exited with exit code 1",
    )
    argv = preflight(promised, output, f'echo "{said}" >&2; exit 1')
    with (tmp_path / "log").open("w") as log:
        code = subprocess.run(argv, cwd=ROOT, env=LOCAL, stdout=log, stderr=log).returncode
    first = promise.errors(output)[0]
    assert code == 1 and missing(first, "rank 1", "node2", "exit code 1") == []


def test_a_preflight_ends_with_the_job_that_made_it(
    tmp_path: Path, promised: dict[str, Any]
) -> None:
    """One whose job was killed went on beside the next call's, and left a failure behind its
    success.
    """
    argv = preflight(promised, tmp_path / "preflight.json", "echo $PPID >pid; sleep 600")
    job = subprocess.Popen(
        ["sh", "-c", '"$@"; true', "sh", *argv], cwd=tmp_path, env=LOCAL, start_new_session=True
    )
    try:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip(), 60)
        supervisor = psutil.Process(int((tmp_path / "pid").read_text()))
        job.kill()
        until(lambda: not supervisor.is_running() or living.state(supervisor.pid) is None, 60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def test_errors_come_first(ranks: Facts, promised: dict[str, Any]) -> None:
    ranks[0]["cores"] = [0]
    ranks[0]["lacks"] = ["torch"]
    assert [p.error for p in judge.judge(ranks, promised)] == [True, False]


@pytest.mark.parametrize(
    ("environment", "absent"),
    [
        ({}, []),
        ({"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "ib"}, []),
        ({"NCCL_SOCKET_IFNAME": "^lo,docker"}, []),
        ({"NCCL_SOCKET_IFNAME": "=ib0"}, []),
        ({"NCCL_SOCKET_IFNAME": "=ib"}, ["NCCL_SOCKET_IFNAME"]),
        ({"GLOO_SOCKET_IFNAME": "ib"}, ["GLOO_SOCKET_IFNAME"]),
        ({"GLOO_SOCKET_IFNAME": "eth0,ib1"}, ["GLOO_SOCKET_IFNAME"]),
        ({"NCCL_SOCKET_IFNAME": "hsn,eno"}, ["NCCL_SOCKET_IFNAME"]),
    ],
)
def test_interfaces_are_named_as_the_libraries_read_them(
    environment: dict[str, str], absent: list[str]
) -> None:
    assert list(judge._absent_interfaces(["lo", "eth0", "ib0"], environment)) == absent
