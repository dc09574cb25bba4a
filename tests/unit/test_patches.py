"""The guard of patches of foreign code, and what some of them patch; of the others that has its own
tests.
"""

import _ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Lock, Semaphore
from types import SimpleNamespace
from typing import Any

import pytest
from ddlbench import patches
from ddlbench.core import notes, registry
from ddlbench.patches import torchvision_operators
from ddlbench.run.watch import remove_build_locks, watch

from tests.conftest import until
from tests.facts import missing, refuses


@pytest.mark.parametrize(
    ("installed", "tried", "refused"),
    [
        ("2.13.0", "2.13", False),
        ("2.13.0+cpu", "2.13.0", False),  # labels of builds are no releases
        ("2.13.1.post2+cu130", "2.13", False),
        ("2.13", "2.13.0", True),
        ("2.130.0", "2.13", True),
        ("3.0.0", "2.13", True),
    ],
)
def test_a_mend_is_for_its_releases(
    installed: str, tried: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patches.registry, "release", lambda _: installed)
    if not refused:
        patches.only_for("somewhat", (tried, "1.0"), "its_file")
        return
    with pytest.raises(patches.ReleaseError) as error:
        patches.only_for("somewhat", (tried, "1.0"), "its_file")
    said = str(error.value)
    assert said.startswith(f"somewhat {patches.release('somewhat')} ") and "\n" not in said
    assert f"allowed: {tried} or 1.0" in said and "patches/its_file.py" in said


def test_a_private_name_that_is_gone_is_one_sentence() -> None:
    owner = type("Owner", (), {"_here": 3})
    assert patches.private(owner, "_here", "torch", ("2.13",), "its_file") == 3
    with refuses(patches.ReleaseError, "torch", "_gone", "ddlbench/patches/its_file.py"):
        patches.private(owner, "_gone", "torch", ("2.13",), "its_file")


def test_the_end_of_a_backward_pass_is_told_when_all_gradients_are_there() -> None:
    import torch
    from ddlbench.patches import backward_end

    weights: list[Any] = [torch.ones(1, requires_grad=True) for _ in range(3)]
    there: list[list[bool]] = []
    told = partial(
        backward_end.call_when_computed, lambda: there.append([w.grad is not None for w in weights])
    )
    weights[0].register_hook(lambda _: told())
    sum(weight * weight for weight in weights).backward()
    assert there == [[True] * 3]


def test_a_rank_of_horovod_does_not_wait_for_ever(tmp_path: Path) -> None:
    program = (
        "from time import sleep; from ddlbench.patches import horovod_stalls as m; m.watch(3,"
        " 1.0)\n"
    )
    program += (
        "with m.Waiting(): pass\nsleep(2); print('trains', flush=True)\nwith m.Waiting(): sleep(60)"
    )
    command, variables = (
        [sys.executable, "-c", program],
        os.environ | {"DDLBENCH_FOLDER": str(tmp_path)},
    )
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout) == (1, "trains\n")
    assert missing(notes.read(tmp_path, "failure")[3]["message"], "timed out", "1 s") == []


def test_a_missing_compiler_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from ddlbench.patches import inductor_compiler
    from torch._inductor import config

    for name, there in (("no-such-compiler", False), ("g++", True)):
        monkeypatch.setattr(config.cpp, "cxx", (name,))
        assert inductor_compiler.has_compiler() == there


def test_deepspeed_gets_numbers_of_gpus_that_slurm_names_by_uuid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import pynvml
    import torch
    from ddlbench.patches import deepspeed_devices

    uuids = ["aa", "bb", "cc"]
    for name, answer in {"Init": None, "DeviceGetCount": 3}.items():
        monkeypatch.setattr(pynvml, f"nvml{name}", lambda answer=answer: answer)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", int)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda number: f"GPU-{uuids[number]}")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    seen = [SimpleNamespace(uuid=uuid) for uuid in ("cc", "aa")]
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: seen[number])
    for told, numbers in {"GPU-cc,GPU-aa": "2,0", "1,0": "1,0"}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", told)
        deepspeed_devices.number_visible()
        assert os.environ["CUDA_VISIBLE_DEVICES"] == numbers


def _patched() -> dict[str, Callable[[], object]]:
    """Every patch of what a rank trains with that would do harm in another release, as it is
    begun.
    """
    from ddlbench.patches import (
        dali_epochs,
        deepspeed_loss_scale,
        deepspeed_on_cpu,
        deepspeed_one_bit,
        deepspeed_watchers,
        deepspeed_zero,
        timm_layer_dropping,
    )

    return {
        "dali_epochs": lambda: dali_epochs.EpochDecoder(None, "nvidia-dali-cuda120", 2, 4),
        "deepspeed_loss_scale": lambda: deepspeed_loss_scale.give(None, None, None),
        "deepspeed_on_cpu": deepspeed_on_cpu.enable,
        "deepspeed_one_bit": lambda: deepspeed_one_bit.take_first_step(None),
        "deepspeed_watchers": lambda: deepspeed_watchers.watch_reductions(
            None, None, 0, False, lambda m: m, bool
        ),
        "deepspeed_zero": deepspeed_zero.guard,
        "timm_layer_dropping": timm_layer_dropping.guard,
    }


@pytest.mark.parametrize("name", _patched())
def test_another_release_is_refused_before_anything_is_changed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patches.registry, "release", lambda _: "99.1+cu130")
    with refuses(patches.ReleaseError, 99.1, f"ddlbench/patches/{name}.py"):
        _patched()[name]()


@pytest.mark.parametrize(
    ("option", "value", "patch"),
    [
        ("compression", "1-bit-adam", "deepspeed_one_bit"),
        ("progressive_layer_dropping", True, "timm_layer_dropping"),
    ],
)
def test_a_later_deepspeed_trains_without_the_options_that_it_lost(
    option: str, value: object, patch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.19.8 has no one-bit optimizers and no layer dropping: these are refused by name, before
    anything starts.
    """
    framework = registry.member("frameworks", "deepspeed")
    usual = {name: about["default"] for name, about in framework.OPTIONS.items()}
    for release, refused in (("0.19.6", False), ("0.19.8", True)):
        monkeypatch.setattr(patches.registry, "release", lambda _, release=release: release)
        assert framework.lacks("cpu", usual) is None
        said = framework.lacks("cpu", usual | {option: value})
        assert (
            said is not None and f"ddlbench/patches/{patch}.py" in said and "0.19.8" in said
        ) == refused


def test_deepspeed_starts_on_cpus_where_it_has_no_one_bit_optimizers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As 0.19.8, which has no backend for them."""
    from ddlbench.patches import deepspeed_on_cpu

    ops = SimpleNamespace(
        __compatible_ops__={"deepspeed_shm_comm": True}, op_builder=SimpleNamespace()
    )
    monkeypatch.setitem(sys.modules, "deepspeed", SimpleNamespace(ops=ops))
    monkeypatch.setitem(sys.modules, "deepspeed.ops", ops)
    monkeypatch.setitem(sys.modules, "deepspeed.ops.op_builder", ops.op_builder)
    monkeypatch.setattr(deepspeed_on_cpu, "find_spec", {deepspeed_on_cpu.BACKEND: None}.__getitem__)
    deepspeed_on_cpu.enable()
    assert ops.__compatible_ops__ == {"deepspeed_shm_comm": False}
    assert vars(ops.op_builder) == {}


def test_ranks_wait_as_long_as_they_are_told_in_groups_that_say_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch.distributed.distributed_c10d as c10d
    from ddlbench.patches.group_timeout import set_timeout

    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        monkeypatch.setattr(c10d, name, timedelta(minutes=10))
    assert set_timeout(None) == timedelta(minutes=10)
    assert set_timeout(7.0) == timedelta(seconds=7)
    assert c10d.default_pg_timeout == c10d.default_pg_nccl_timeout == timedelta(seconds=7)


def test_horovods_optimizer_gets_back_what_lies_beside_the_groups() -> None:
    from ddlbench.patches import horovod_optimizer

    recipes, distributed = (
        SimpleNamespace(max_grad_norm=None, groups=[1]),
        SimpleNamespace(max_grad_norm=1.0, size=2),
    )
    assert vars(horovod_optimizer.restore(distributed, recipes)) == {
        "max_grad_norm": None,
        "groups": [1],
        "size": 2,
    }


def test_a_job_waits_for_no_builder_that_was_killed(tmp_path: Path, handlers: None) -> None:
    lock = tmp_path / "torch_extensions/py311_cpu/an_op/lock"
    lock.parent.mkdir(parents=True)
    variables = {"XDG_CACHE_HOME": str(tmp_path)}
    with lock.open("w") as file, subprocess.Popen(["sleep", "60"], stdin=file) as builder:
        file.close()
        remove_build_locks(variables)
        assert lock.exists(), "its builder lives"
        builder.kill()
    remove_build_locks(variables | {"SLURM_JOB_ID": "1"})
    assert lock.exists(), "its builder may live on another node"
    wait = f"while [ -e {lock} ]; do sleep 0.1; done"
    assert (
        watch(
            ["env", f"XDG_CACHE_HOME={tmp_path}", "timeout", "9", "sh", "-c", wait], tmp_path
        ).code
        == 0
    )


def test_pytorchs_loss_scaler_counts_no_steps_and_reading_its_scale_waits() -> None:
    import torch
    from ddlbench.patches.loss_scale import SkippedSteps

    from tests.host_waits import HostWaits

    weight, scaler = torch.ones(1, requires_grad=True), torch.amp.GradScaler("cpu")
    skipped, optimizer = SkippedSteps(scaler), torch.optim.SGD([weight], fused=True)
    assert not [name for name in dir(scaler) if "skip" in name]
    for factor in (1.0, float("inf"), 1.0):
        scaler.scale(weight * factor).sum().backward()
        with HostWaits() as counted:
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()
        with HostWaits() as asked:
            scaler.get_scale()
        assert (counted.count, asked.count) == ({}, {"aten._local_scalar_dense": 1})
    assert skipped.steps == 1


def test_pytorch_counts_too_many_operations_of_grouped_convolutions() -> None:
    import torch
    from ddlbench.patches import grouped_convolutions
    from torch.utils.flop_counter import FlopCounterMode

    def backward(**how: Any) -> float:
        """Operations by those of the forward pass."""
        with FlopCounterMode(display=False, **how) as forward:
            scores = torch.nn.Conv2d(8, 8, 3, groups=4)(torch.rand(1, 8, 9, 9, requires_grad=True))
        with FlopCounterMode(display=False, **how) as counter:
            scores.sum().backward()
        return counter.get_total_flops() / forward.get_total_flops()

    assert (backward(), backward(custom_mapping=grouped_convolutions.counting())) == (5, 2)


UNTIL = """
from ddlbench.patches import snakemake_until
def after(wildcards):
    if config:
        snakemake_until.apply(workflow.dag)
    return checkpoints.first.get().output
rule table:
    input: "r1.log"
    shell: "false"
checkpoint first:
    output: "first"
    shell: "touch {output}"
rule train:
    input: after
    output: "{run}.log"
    shell: "touch {output}"
"""


@pytest.mark.more
def test_until_a_rule_behind_a_checkpoint_makes_nothing_unless_it_is_patched(
    tmp_path: Path,
) -> None:
    (tmp_path / "Snakefile").write_text(UNTIL)
    snakemake = [sys.executable, "-m", "snakemake", "--cores=1", "--until", "train"]
    for config, there in (((), False), (("--config", "patched=1"), True)):
        subprocess.run([*snakemake, *config], cwd=tmp_path, capture_output=True, check=True)
        assert (tmp_path / "r1.log").exists() == there


SIGTERM = """
from ddlbench.patches import snakemake_sigterm
snakemake_sigterm.apply()
rule all:
    input: "second"
rule first:
    output: "first"
    shell: "touch begun"
rule second:
    input: "first"
    output: "second"
    shell: "touch {output}"
"""


@pytest.mark.more
def test_sigterm_ends_snakemake_while_it_waits_for_a_file(tmp_path: Path) -> None:
    """It waits for what a job has made with the scheduler's lock taken."""
    (tmp_path / "Snakefile").write_text(SIGTERM)
    snakemake = [sys.executable, "-m", "snakemake", "--cores=1", "--latency-wait=60"]
    said = tmp_path / "said"
    with said.open("w") as out:
        process = subprocess.Popen(snakemake, cwd=tmp_path, stdout=out, stderr=out)
    until(lambda: "Waiting at most" in said.read_text(), 120)
    process.send_signal(signal.SIGTERM)
    (tmp_path / "first").touch()
    try:
        until(lambda: process.poll() is not None, 120)
    finally:
        process.kill()
    assert not (tmp_path / "second").exists()


def test_sigterm_takes_no_lock_of_the_thread_that_it_interrupts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ddlbench.patches import snakemake_sigterm
    from snakemake.scheduling.job_scheduler import JobScheduler

    monkeypatch.setattr(JobScheduler, "exit_gracefully", JobScheduler.exit_gracefully)
    snakemake_sigterm.apply()
    scheduler: Any = SimpleNamespace(_lock=Lock(), _open_jobs=Semaphore(0), _user_kill=None)
    with scheduler._lock:
        JobScheduler.exit_gracefully(scheduler, signal.SIGTERM, None)
    assert scheduler._user_kill == "graceful"
    assert scheduler._open_jobs.acquire(timeout=60)


def test_params_that_mean_the_same_make_a_job_stale_unless_it_is_patched() -> None:
    from ddlbench.patches import snakemake_params
    from snakemake.persistence import PersistenceBase

    def changed(rule: str, before: list[str], now: list[str]) -> bool:
        memory: Any = SimpleNamespace(
            record_format_version=lambda file: 6,
            params=lambda file: before,
            _params=lambda job: now,
        )
        job: Any = SimpleNamespace(rule=SimpleNamespace(name=rule), output=["made"])
        return bool(PersistenceBase.params_changed(memory, job))

    assert changed("train", ["'a 1'"], ["'a 2'"])
    before = PersistenceBase.params_changed
    try:
        snakemake_params.apply(["train"], lambda old, new: old[0] == new[0])
        snakemake_params.apply(
            ["train"], lambda old, new: old[0] == new[0]
        )  # called again, it asks once
        assert not changed("train", ["'a 1'"], ["'a 2'"])
        assert changed("train", ["'a 1'"], ["'b 1'"])
        assert changed("train", ["1"], ["2"])
        assert changed("train", ["'a 1'"], ["'a 2'", "3"])
        assert changed("collect", ["'a 1'"], ["'a 2'"])
    finally:
        PersistenceBase.params_changed = before


@pytest.mark.parametrize(
    ("library", "loads", "defined"),
    [
        ("_C.so", True, 0),
        ("_C_stable.so", True, 0),  # of torchvision 0.29: defining twice aborts the process
        ("_C.so", False, 2),
        ("_C_stable.so", False, 2),
        (None, False, 2),
    ],
)
def test_operators_are_defined_only_where_torchvision_cannot_define_them(
    library: str | None, loads: bool, defined: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "__init__.py").touch()
    if library and loads:
        (tmp_path / library).symlink_to(_ctypes.__file__)  # some library that can be loaded
    elif library:
        (tmp_path / library).write_text("no library")
    defines: list[str] = []
    torch = SimpleNamespace(library=SimpleNamespace(define=lambda name, _: defines.append(name)))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(
        torchvision_operators,
        "find_spec",
        lambda _: SimpleNamespace(origin=str(tmp_path / "__init__.py")),
    )
    torchvision_operators.apply.__wrapped__()
    assert len(defines) == defined
