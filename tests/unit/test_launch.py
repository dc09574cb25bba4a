"""Runs become command lines, and what a queue is asked for: as values, without a GPU or a queue."""

import hashlib
import importlib
import os
import platform
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ddlbench.core import registry
from ddlbench.plan import bill, launch
from ddlbench.plan.kinds.training import guess_minutes
from ddlbench.plan.reads import missing_packages
from ddlbench.plan.runs import make_plan
from ddlbench.plan.values import Plan
from ddlbench.run.facts import facts
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import Machine, Partition
from ddlbench.slurm.sbatch import node_resources
from ddlbench.train.assignment import RELEVANT, seen_here

from tests.builders.machines import JUWELS, LAPTOP, write_machine
from tests.builders.plans import pick
from tests.facts import missing, refuses

# Command lines


@pytest.mark.parametrize(
    ("workers", "nodes", "per_node"),
    [(4, 1, 4), (8, 2, 4), (1024, 256, 4)],
    ids=["one", "two", "all"],
)
def test_srun_is_told_every_count(paper: Plan, workers: int, nodes: int, per_node: int) -> None:
    spec = pick(paper, framework="horovod", loader="dali-gpu", workers=workers)
    argv = launch.command(spec, JUWELS)
    srun = (
        f"srun --nodes={nodes} --ntasks={workers} --ntasks-per-node={per_node} --cpus-per-task=12 "
    )
    srun += (
        f"--kill-on-bad-exit=1 --threads-per-core=1 --gres=gpu:{per_node} python -m ddlbench.train"
    )
    assert argv[argv.index("srun") :] == srun.split()
    settings = argv[1 : argv.index("srun")]
    assert argv[0] == "env"
    wanted = (
        "OMP_NUM_THREADS=1 NCCL_SOCKET_IFNAME=ib0 GLOO_SOCKET_IFNAME=ib0 HOROVOD_GLOO_IFACE=ib0 "
    )
    wanted += (
        "NCCL_IB_TIMEOUT=22 NCCL_IB_RETRY_CNT=7 CUDA_VISIBLE_DEVICES=0,1,2,3 UCX_RC_TIMEOUT=4s"
    )
    assert set(wanted.split()) <= set(settings)


def test_sbatch_and_srun_get_the_machines_flags(paper: Plan) -> None:
    spec = pick(paper, framework="horovod", loader="dali-gpu", workers=8)
    assert "--threads-per-core=1" in launch.command(spec, JUWELS)
    asked = launch.resources(spec, JUWELS, 60, None)
    flags = str(asked["slurm_extra"]).split()
    assert flags == [
        "--ntasks-per-node=4",
        "--signal=USR1@120",
        "--exclusive",
        "--threads-per-core=1",
    ]
    assert "per-core" not in str(launch.resources(spec, replace(JUWELS, slurm_flags=()), 60, None))


def test_excluded_nodes_are_asked_for_by_no_job(paper: Plan) -> None:
    machine = replace(JUWELS, exclude_nodes=("jwb0001", "jwb0107"))
    spec = pick(paper, workers=8)
    asked = launch.resources(spec, machine, 30, "project")
    assert " --exclude=jwb0001,jwb0107" in str(asked["slurm_extra"])
    assert node_resources(machine, "project")["slurm_extra"] == "--exclude=jwb0001,jwb0107"
    plain = launch.resources(spec, JUWELS, 30, "project")
    assert "--exclude" not in str(plain["slurm_extra"])
    assert "slurm_extra" not in node_resources(JUWELS, "project")


def test_a_profiled_run_and_a_sites_comment_ask_for_more(paper: Plan) -> None:
    spec = pick(paper, framework="horovod", loader="dali-gpu", workers=8)
    profiled = launch.resources(replace(spec, profiled=True, timed=False), JUWELS, 60, None)
    assert str(profiled["slurm_extra"]).endswith(" --threads-per-core=1 --disable-dcgm")
    assert "dcgm" not in str(profiled["launch"])
    assert "site_comment" not in profiled
    told = replace(JUWELS, comment="fs=work")
    assert launch.resources(spec, told, 60, None)["site_comment"] == "fs=work"
    assert node_resources(told, None)["site_comment"] == "fs=work"


@pytest.mark.parametrize("image", ["file", "reference"])
def test_a_container_stands_before_python_and_its_digest_is_recorded(
    paper: Plan, tmp_path: Path, image: str
) -> None:
    (tmp_path / "a.sif").write_bytes(b"image")
    digest = hashlib.sha256(b"image").hexdigest()
    named = str(tmp_path / "a.sif") if image == "file" else f"place/a@sha256:{digest}"
    words = ["apptainer", "exec", "--nv", named]
    machine = other(tmp_path, container=words)
    spec = pick(paper, framework="horovod", loader="dali-gpu", workers=8)
    argv = launch.command(spec, machine)
    assert argv[-7:] == [*words, "python", "-m", "ddlbench.train"]
    assert argv[-9].startswith("--")  # srun's
    for framework in registry.members("frameworks"):
        here = launch.command(
            replace(spec, framework=framework), replace(LAPTOP, container=tuple(words))
        )
        bare = launch.command(replace(spec, framework=framework), LAPTOP)
        start = next(n for n, word in enumerate(bare) if n and "=" not in word)
        assert here == [*bare[:start], *words, *bare[start:]]
    assert facts(spec, argv)["container"] == digest
    assert facts(spec, launch.command(spec, LAPTOP))["container"] is None
    assert missing_packages([replace(spec, framework="none there")], machine) == []


def test_a_rank_says_the_versions_and_variables_that_it_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith(RELEVANT)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NCCL_ALGO", "Ring, Tree")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    monkeypatch.setenv("HF_TOKEN", "secret")
    told = seen_here(
        {"python": "2.7", "versions": {"torch": "0.1", "none-there": "3"}, "cpu": "x"}, "cpu"
    )
    here = {"python": platform.python_version(), "cpu": "x", "nccl_version": None}
    here["versions"] = {"torch": registry.release("torch"), "none-there": "3"}
    assert told == here | {"environment": "'NCCL_ALGO=Ring, Tree' NVIDIA_TF32_OVERRIDE=0"}


def other(folder: Path, **keys: Any) -> Machine:
    """The shipped machine `slurm` with these keys."""
    return write_machine(folder, "slurm", "other", **keys)


class Asked(dict[str, Any]):
    """Resources of a job, as Snakemake hands them to an executor."""

    __getattr__ = dict.get


HOSTILE_VALUES = (
    "$(touch ran)",
    "`touch ran`",
    "a;touch ran",
    "a&touch ran",
    "a|touch ran",
    "a>ran",
    "'a\"b",
)
HOSTILE_VALUES += (
    "a b -o ran",
    "team-Jan",
    "x --mem 4 --comment y",
    "*?[a]~!#{y}\\",
    "${HOME}",
    "%j",
    "",
)


@pytest.mark.parametrize("value", HOSTILE_VALUES)
def test_what_a_machine_says_reaches_sbatch_and_srun_as_it_is_written(
    paper: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """Executed by a shell, as the SLURM plugin does it, with programs that write down what they
    get.
    """
    plugin = "snakemake_executor_plugin_slurm"
    submit = pytest.importorskip(f"{plugin}.submit_string").get_submit_command
    validate = importlib.import_module(f"{plugin}.validation").validate_slurm_extra
    for name in ("sbatch", "srun"):
        (tmp_path / name).write_text('#!/bin/sh\nprintf \'%s\\0\' "$@" > "$0.said"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    flags = [f"--reservation={value}", f"--licenses={value}"]
    keys = {"qos": value, "constraint": value} if value else {}
    machine = other(tmp_path, slurm_flags=flags, exclude_nodes=["n-J1", "n2"], **keys)
    run = pick(paper)
    about = dict.fromkeys(
        ("run_uuid", "slurm_logfile", "comment_str", "account", "partition", "workdir"), "x"
    )
    for asked in (launch.resources(run, machine, 60, None), node_resources(machine, None)):
        given = {name: text for name, text in asked.items() if text is not None}
        job = SimpleNamespace(resources=Asked(given), threads=1)
        validate(job)  # refuses what looks like a flag of its own
        subprocess.run(submit(job, about), shell=True, check=True, cwd=tmp_path)
        said = (tmp_path / "sbatch.said").read_text().split("\0")
        assert "--exclude=n-J1,n2" in said
        assert not value or {f"--qos={value}", value} <= set(said)
        assert ("--exclude=n-J1,n2" in said, flags[0] in said) == (True, "launch" in asked)
        if "launch" in asked:
            subprocess.run(str(asked["launch"]), shell=True, check=True, cwd=tmp_path)
            assert set(flags) <= set((tmp_path / "srun.said").read_text().split("\0"))
    assert not (tmp_path / "ran").exists()


def test_jobs_that_train_nothing_ask_for_what_the_machine_says() -> None:
    """QOS and constraint are those of the partitions that train."""
    where = {"slurm_partition": "booster", "slurm_account": "project"}
    assert node_resources(JUWELS, "project") == where | {
        "runtime": 360,
        "gres": "gpu:4",
        "tasks_per_gpu": 0,
    }
    bare = replace(
        JUWELS,
        data_minutes=None,
        data_gres=None,
        data_partition="batch",
        qos="long",
        constraint="a100",
    )
    assert node_resources(bare, None) == {
        "slurm_partition": "batch",
        "slurm_account": None,
        "runtime": 1440,
    }


def test_a_run_smaller_than_a_node_asks_for_its_own_gpus_only(paper: Plan) -> None:
    study = replace(paper.study, blocks=(replace(paper.study.blocks[0], workers=(2,)),), figures=())
    argv = launch.command(pick(make_plan(study, JUWELS)), JUWELS)
    assert {"--nodes=1", "--ntasks=2", "--ntasks-per-node=2", "--gres=gpu:2"} <= set(argv)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_timed_run_has_its_nodes_to_itself(paper: Plan, workers: int) -> None:
    """Else SLURM puts the next job onto what is left, and each run measures the other. A node may
    have more than the machine's file says, so that a run which fills its nodes by the file needs it
    too.
    """
    timed = replace(
        pick(paper), workers=workers, workers_per_node=workers, global_batch=64 * workers
    )
    assert "--exclusive" in str(launch.resources(timed, JUWELS, 60, None)["slurm_extra"]).split()
    assert "--exclusive" not in launch.command(
        timed, JUWELS
    )  # to srun it would mean something else
    assert "--exclusive" not in str(
        launch.resources(replace(timed, timed=False), JUWELS, 60, None)["slurm_extra"]
    )


def test_what_no_other_job_can_have_is_paid_for(paper: Plan, tmp_path: Path) -> None:
    machine = replace(JUWELS, price_per_gpu_hour=2.0, currency="EUR")
    study = replace(paper.study, blocks=(replace(paper.study.blocks[0], workers=(2,)),), figures=())
    (row, *_) = bill.rows(make_plan(study, machine), {"imagenet": 1281167}, tmp_path)
    assert row.wall_s and row.price
    assert row.gpu_hours == pytest.approx(2 * row.wall_s / 3600)
    assert row.price == pytest.approx(2.0 * 4 * row.wall_s / 3600)


def test_no_frameworks_launcher_runs_under_slurm(paper: Plan) -> None:
    for job in paper.runs.values():
        argv = launch.command(job.spec, JUWELS)
        assert "srun" in argv
        assert not {"torch.distributed.run", "torchrun", "horovodrun", "deepspeed", "mpirun"} & set(
            argv
        )


TRAIN = ["python", "-m", "ddlbench.train"]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("framework", ["ddp", "deepspeed", "horovod"])
def test_ranks_of_every_framework_start_alike_on_one_machine(
    demo: Plan, framework: str, workers: int
) -> None:
    spec = replace(pick(demo, framework=framework, workers=2, loader="native"), workers=workers)
    own = {
        "ddp": ["DDLBENCH_TIMEOUT_S=120"],
        "deepspeed": ["DS_ACCELERATOR=cpu", "DDLBENCH_TIMEOUT_S=120"],
        "horovod": [
            *("HOROVOD_CONTROLLER=gloo", "HOROVOD_CPU_OPERATIONS=gloo"),
            *("HOROVOD_FUSION_THRESHOLD=134217728", "HOROVOD_CYCLE_TIME=1"),
            "HOROVOD_GLOO_TIMEOUT_SECONDS=120",
        ],
    }
    threads = ["OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1"]
    threads += ["MALLOC_MMAP_THRESHOLD_=33554432", "MALLOC_TRIM_THRESHOLD_=1073741824"]
    start = ["python", "-m", "ddlbench.run.local", f"--workers={workers}"]
    assert launch.command(spec, LAPTOP) == ["env", *threads, *own[framework], *start, *TRAIN]


HOSTILE = "a b'c\"d $(touch x) `id`; {y} \\"


def test_hostile_text_in_a_machine_stays_text(demo: Plan) -> None:
    machine = replace(
        LAPTOP, device_name=HOSTILE, data=HOSTILE, environment=(("NCCL_NOTE", HOSTILE),)
    )
    of = make_plan(replace(demo.study, title=HOSTILE), machine)
    assert list(of.runs) == list(demo.runs)
    for job in of.runs.values():
        argv = launch.command(job.spec, machine)
        assert f"NCCL_NOTE={HOSTILE}" in argv  # one argument, as it was written
        assert shlex.split(shlex.join(argv)) == argv


# Limits and needs


def test_minutes_are_half_an_hour_and_half_as_much_again_within_the_queues(paper: Plan) -> None:
    small = pick(paper, model="resnet50", workers=4)
    assert guess_minutes(small, JUWELS) == round(
        30 + 1.5 * 13 * 60
    )  # 13 h in the paper; its rate is rounded
    assert (
        guess_minutes(pick(paper, model="resnet152", workers=4, profiled=False), JUWELS) == 24 * 60
    )
    assert (
        guess_minutes(pick(paper, model="resnet50", workers=1024), JUWELS) == 35
    )  # 30 + 1.5 * 3 min
    for job in paper.runs.values():
        assert 30 <= guess_minutes(job.spec, JUWELS) <= 24 * 60


def test_a_block_s_minutes_take_the_place_of_the_guess(paper: Plan) -> None:
    """The longest of blocks that name a run; no run gets another id, and none becomes stale."""
    study = paper.study
    first, *others = study.blocks
    of = make_plan(
        replace(study, blocks=(replace(first, minutes=700), replace(first, name="twin"), *others)),
        JUWELS,
    )
    assert list(of.runs) == list(paper.runs)
    for run, job in of.runs.items():
        assert job.spec.to_json() == paper.runs[run].spec.to_json()
        said = run in of.blocks[first.name]
        assert job.resources["runtime"] == (700 if said else paper.runs[run].resources["runtime"])
    job = of.runs[of.blocks[first.name][0]]
    assert [job.asks(attempt)["runtime"] for attempt in (1, 2, 3)] == [
        700,
        1400,
        1440,
    ]  # within the queue's
    blocks = tuple(replace(first, name=str(n), minutes=n) for n in (700, 900, 800))
    longest = make_plan(replace(study, blocks=blocks, figures=()), JUWELS)
    assert {job.resources["runtime"] for job in longest.runs.values()} == {900}


def test_minutes_that_no_queue_gives_are_refused(paper: Plan, demo: Plan) -> None:
    study = replace(paper.study, blocks=(replace(paper.study.blocks[0], minutes=1441),), figures=())
    with refuses(ConfigError, "minutes: 1441 ", 1440, "juwels-booster"):
        make_plan(study, JUWELS)
    long = replace(
        demo.study, blocks=tuple(replace(block, minutes=99_999) for block in demo.study.blocks)
    )
    assert list(make_plan(long, LAPTOP).runs) == list(demo.runs)  # it has no queue


def test_minutes_of_an_unknown_model_are_all_that_the_queue_gives(paper: Plan) -> None:
    short = replace(JUWELS, images_per_s=(), partitions=(Partition("short", 384, 120),))
    assert guess_minutes(pick(paper), short) == 120
    assert guess_minutes(pick(paper), replace(LAPTOP, images_per_s=())) == 24 * 60


def test_a_run_goes_to_the_first_partition_with_room_for_its_nodes_and_minutes() -> None:
    queues = (
        Partition("devel", 4, 120),
        Partition("main", 384, 1440),
        Partition("large", 936, 1000),
    )
    machine = replace(JUWELS, partitions=queues)
    names = {
        (nodes, minutes): getattr(machine.partition(nodes, minutes), "name", None)
        for nodes, minutes in (
            (1, 120),
            (4, 60),
            (1, 121),
            (5, 60),
            (384, 60),
            (385, 60),
            (385, 1200),
            (937, 60),
        )
    }
    assert list(names.values()) == [
        "devel",
        "devel",
        "main",
        "main",
        "main",
        "large",
        "large",
        None,
    ]
    assert (
        getattr(machine.partition(1, 3000), "name", None) == "main"
    )  # none is long enough: the longest
    assert getattr(machine.partition(1), "name", None) == "main"  # nobody knows how long


def test_a_run_that_met_its_limit_asks_for_more_and_for_a_longer_queue(paper: Plan) -> None:
    machine = replace(JUWELS, partitions=(Partition("devel", 4, 200), Partition("main", 384, 300)))
    of = make_plan(paper.study, machine)
    job = of.runs[pick(of, profiled=True, workers=4).id]
    asked = [(a["slurm_partition"], a["runtime"]) for a in map(job.asks, (1, 2, 3, 4))]
    first = guess_minutes(job.spec, machine)
    assert 2 * first <= 200 < 3 * first <= 300 < 4 * first
    assert asked == [("devel", first), ("devel", 2 * first), ("main", 3 * first), ("main", 300)]
    assert f"limit {2 * first} min" in str(job.asks(2)["asks"])
    assert job.asks(1) == job.resources


def test_memory_is_asked_for_a_node_or_not_at_all(paper: Plan) -> None:
    asked = {
        (memory, workers): launch.resources(
            pick(paper, workers=workers), replace(JUWELS, memory_mb_per_worker=memory), 60, None
        )["mem_mb"]
        for memory in (None, 1000)
        for workers in (4, 8)
    }
    assert asked == {(None, 4): 0, (None, 8): 0, (1000, 4): 4000, (1000, 8): 4000}


def absent(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Make `plan` believe that these packages are not installed, and all others are."""
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name in packages else object())


def test_missing_packages_are_named_with_what_installs_them(
    demo: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent(monkeypatch, "horovod", "nvidia.dali")
    specs = [job.spec for job in demo.runs.values()]
    lines = missing_packages([*specs, replace(specs[0], loader="dali-cpu")], LAPTOP)
    horovod, dali = registry.member("frameworks", "horovod"), registry.member("loaders", "dali-cpu")
    assert len(lines) == 2
    assert missing(lines[0], "framework horovod", "Python package horovod", horovod.INSTALL) == []
    assert missing(lines[1], "loader dali-cpu", "Python package nvidia.dali", dali.INSTALL) == []


def test_only_a_job_knows_what_modules_bring(paper: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    absent(monkeypatch, "torch", "horovod", "deepspeed", "nvidia.dali")
    assert missing_packages([job.spec for job in paper.runs.values()], JUWELS) == []


# Variables


OWN = (
    ("HF_TOKEN", "secret"),
    ("NCCL_DEBUG", "INFO"),
    ("OMP_PLACES", "cores"),
    ("MY_OMP_X", "y"),
    ("OMP_NUM_THREADS", "5"),
)
TOLD = {
    "HF_TOKEN": launch.HIDDEN,
    "NCCL_DEBUG": "INFO",
    "OMP_PLACES": "cores",
    "MY_OMP_X": launch.HIDDEN,
}


def test_values_that_might_be_secrets_are_in_no_command(demo: Plan) -> None:
    machine, spec = replace(LAPTOP, environment=OWN), pick(demo, workers=1)
    assert launch.hide(machine).environment == (*TOLD.items(), ("OMP_NUM_THREADS", "5"))
    assert launch.hide(launch.hide(machine)) == launch.hide(machine)
    harmless = replace(machine, environment=OWN[1:3])
    assert launch.hide(harmless) is harmless
    argv = launch.command(spec, machine)
    assert {f"{name}={value}" for name, value in TOLD.items()} <= {*argv}
    assert "secret" not in " ".join(argv) + str(launch.resources(spec, machine, 60, None))
    ranks = launch.environment(spec, machine)  # which get them
    assert {name: ranks[name] for name, _ in OWN} == dict(OWN)


@pytest.mark.parametrize(
    "name",
    [
        "OMP_A",
        "MKL_A",
        "KMP_A",
        "MALLOC_A",
        "ONEDNN_A",
        "ATEN_A",
        "GLOO_A",
        "NCCL_A",
        "UCX_A",
        "CUDA_A",
        "SLURM_CPU_BIND",
    ],
)
def test_what_explains_a_speed_is_shown(name: str) -> None:
    machine = replace(LAPTOP, environment=((name, "1"), ("A", "1")))
    assert dict(launch.hide(machine).environment) == {name: "1", "A": launch.HIDDEN}


def test_threads_memory_and_the_suffix_of_hosts_by_device(demo: Plan, paper: Plan) -> None:
    cpu = launch.environment(
        pick(demo, workers=1), replace(LAPTOP, cores_per_worker=3, environment=())
    )
    assert (cpu["OMP_NUM_THREADS"], cpu["MKL_NUM_THREADS"]) == ("3", "3")
    assert (cpu["MALLOC_MMAP_THRESHOLD_"], cpu["MALLOC_TRIM_THRESHOLD_"]) == (
        str(32 << 20),
        str(1 << 30),
    )
    assert "DDLBENCH_HOST_SUFFIX" not in cpu
    gpu = launch.environment(pick(paper), replace(JUWELS, cores_per_worker=3, host_suffix="i"))
    assert (gpu["OMP_NUM_THREADS"], gpu["MKL_NUM_THREADS"], gpu["DDLBENCH_HOST_SUFFIX"]) == (
        "1",
        "1",
        "i",
    )
    assert not [name for name in gpu if name.startswith("MALLOC_")]


def test_on_one_machine_nothing_is_asked_of_a_queue(demo: Plan, paper: Plan) -> None:
    spec = pick(demo, workers=1)
    assert launch.resources(spec, LAPTOP, 60, None) == {
        "launch": shlex.join(launch.command(spec, LAPTOP))
    }
    asked = launch.resources(pick(paper), JUWELS, 61, "project", ("python", "x.py"))
    assert (asked["runtime"], asked["slurm_account"]) == (61, "project")
    assert str(asked["launch"]).endswith(" python x.py")


@pytest.mark.parametrize(("bandwidth", "rate"), [(None, []), (1000, ["--mbit=1000"])])
def test_ranks_with_a_cable_between_them(
    demo: Plan, bandwidth: int | None, rate: list[str]
) -> None:
    machine = replace(LAPTOP, launcher="namespaces")
    spec = replace(pick(demo, workers=2), workers_per_node=1, bandwidth_mbit=bandwidth)
    words = ["python", "-m", "ddlbench.run.namespaces", "--nodes=2", *rate, "python", "x.py"]
    assert launch.launcher(spec, machine, ("python", "x.py")) == words
    assert launch.command(spec, machine, ("python", "x.py"))[-len(words) :] == words
