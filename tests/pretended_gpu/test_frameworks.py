"""Training and inference on the pretended GPU: the CPU's losses, goes on to the bit, and waits as
is known.

Where there is a real GPU, the same is asked of it: there, too, waits must be those of the tables
below.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ddlbench.analysis.record import Record
from ddlbench.core import registry
from ddlbench.core.record import WEIGHTS
from ddlbench.core.step_rows import STEP_PARTS
from ddlbench.plan import launch
from ddlbench.settings.machine import load_machine
from ddlbench.train.inference import InferSpec
from ddlbench.train.inference_record import RECORD

from tests.builders.plans import run_spec
from tests.conftest import PATHS, ROOT, shared
from tests.pretended_gpu import build
from tests.pretended_gpu.conftest import PROGRAM, REAL, STEPS, Train, needs_package
from tests.pretended_gpu.rank import STEADY, WAITS

pytestmark = pytest.mark.slow
# A framework and its options.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ddp": ("ddp", {}),
    "ddp, channels last": ("ddp", {"channels_last": True}),
    "fsdp": ("fsdp", {}),
    "horovod": ("horovod", {}),
    "zero 0": ("deepspeed", {}),
    **{f"zero {stage}": ("deepspeed", {"zero_stage": stage}) for stage in (1, 2, 3)},
}
# Relative, to the CPU's in fp32, but of fp16 to those in fp16. A real GPU adds up in orders of its
# own.
NEAR = {"fp32": 1e-4, "tf32": 1e-4, "bf16": 0.02, "fp16": 0.02}
if REAL:
    NEAR = {"tf32": 0.05, "bf16": 0.05, "fp16": 0.05}
PAIRS = [
    (variant, precision)
    for variant in VARIANTS
    for precision in NEAR
    if precision != "fp32" or "ddp" in variant
]
LOADERS = ("synthetic", "native", "torchvision", "spdl")
# Waits of a rank in each step in steady state, by call and function; docs/gpus.md has the table.
# Under fp16 more.
NORM = "deepspeed/runtime/utils.py:mask_nan_or_inf_with_val_inplace"
OF_NORM = {f"copy from pageable memory < {NORM}": 1, f"cudaStreamSynchronize < {NORM}": 1}
NORM3 = "deepspeed/runtime/zero/stage3.py:get_grad_norm_direct"
OF_NORM3 = {f"copy from pageable memory < {NORM3}": 1, f"cudaStreamSynchronize < {NORM3}": 1}
BOTH_STREAMS = {
    "cudaStreamSynchronize < torch/cuda/streams.py:synchronize": 2
}  # of gathers and of reductions
STEP: dict[str, dict[str, int]] = {
    "zero 1": OF_NORM,
    "zero 2": OF_NORM,
    "zero 3": OF_NORM3 | BOTH_STREAMS,
}
READ = {"cudaStreamSynchronize < torch/_ops.py:__call__": 1}  # whether a gradient overflowed
STEP_FP16 = {"fsdp": READ, "zero 1": READ, "zero 2": READ}
# In DDP's steps 2 to 11 it times itself for its own log.
LOG, OF_LOG = "cudaEventSynchronize < torch/nn/parallel/distributed.py:_pre_forward", 8
# In the first epoch at most: DDP begins with some copies, ZeRO 3 asks in which order it gathers.
FIRST = {"ddp": 6, "ddp, channels last": 6, "zero 3": 60}
# Once per epoch a validation's counts, rows of steps and the mean loss are read. Ranks agree about
# five numbers.
PER_EPOCH, AGREEMENT = {"validation": 2, "rows": 8, "end of epoch": 3}, 5
CAPTURES = 15  # to capture a step's graphs
TAKES = ("cudaMalloc", "cudaHostAlloc")  # PyTorch keeps memory: each size is asked for once


def waits(record: Record, *phases: str) -> Counter[str]:
    """What made a rank wait in these phases: how often, by the call and the innermost function."""
    total: Counter[str] = Counter()
    for phase in phases:
        for what, number in record.value(WAITS)["waits"].get(phase, {}).items():
            call, *where = what.split(" < ")
            total[" < ".join([call, *where[-1:]])] += number
    return total


def by_call(counted: Mapping[str, float]) -> dict[str, float]:
    """How often each call of CUDA waits, in whatever function."""
    total: dict[str, float] = {}
    for what, number in counted.items():
        call = what.split(" < ")[0]
        total[call] = total.get(call, 0) + number
    return total


def but_memory(counted: Counter[str]) -> int:
    """How many of them are not asking for memory."""
    return sum(number for what, number in counted.items() if not what.startswith(TAKES))


def losses(record: Record) -> np.ndarray:
    return record.steps.groupby("step")["loss"].sum().to_numpy()


@pytest.mark.parametrize(("variant", "precision"), PAIRS)
def test_losses_are_those_of_a_cpu_and_parts_are_the_step(
    train: Train, variant: str, precision: str
) -> None:
    framework, options = VARIANTS[variant]
    alike = options if framework == "ddp" else {}  # channels last adds up in another order
    there = train(framework, precision, options=options)
    here = train("ddp", "fp16" if precision == "fp16" else "fp32", device="cpu", options=alike)
    np.testing.assert_allclose(losses(there), losses(here), rtol=NEAR[precision])
    assert (
        there.value("ddlbench_skipped_steps")
        == here.value("ddlbench_skipped_steps")
        == (precision == "fp16")
    )
    took = there.steps[[*STEP_PARTS]].sum(axis=1).to_numpy()[1:STEPS]
    np.testing.assert_allclose(
        took, np.diff(there.steps["end_s"].to_numpy()[:STEPS]), rtol=1e-6, atol=2e-6
    )
    assert (
        there.value(WAITS)["elsewhere"] == 0
    )  # all that is timed lies on the stream that computes


@pytest.mark.parametrize(
    ("variant", "precision"), [pair for pair in PAIRS if pair[1] in ("bf16", "fp16")]
)
def test_a_rank_waits_as_often_as_is_known(
    train: Train, variant: str, precision: str, record_property: Callable[[str, object], None]
) -> None:
    """Counted at CUDA's calls: those of threads without Python too; in steady state memory that is
    asked for, too.
    """
    framework, options = VARIANTS[variant]
    record = train(framework, precision, options=options)
    steps = len(record.steps) - STEADY
    expected = STEP.get(variant, {}) | (STEP_FP16.get(variant, {}) if precision == "fp16" else {})
    pinned = {
        what for what in waits(record, "step", "batch") if what.startswith("cudaHostAlloc")
    }  # of a smaller batch
    seen = {
        what: number / steps
        for what, number in waits(record, "step", "batch").items()
        if what not in pinned
    }
    record_property("waits per step", seen)
    if REAL:  # where `compute.py` does not stand in between, a wait is in another function
        assert by_call(seen) == by_call(expected)
    else:
        assert seen == expected
    first = waits(record, "first steps", "first batches")
    assert first.pop(LOG, 0) == (OF_LOG * (STEADY - 2) if framework == "ddp" else 0)
    assert but_memory(first) <= FIRST.get(variant, 0) + STEADY * sum(expected.values())
    counts = {phase: but_memory(waits(record, phase)) for phase in (*PER_EPOCH, "agreement")}
    assert counts.pop("agreement") % AGREEMENT == 0
    assert counts == {phase: 3 * number for phase, number in PER_EPOCH.items()}


@pytest.mark.parametrize("loader", LOADERS)
def test_no_loader_makes_a_step_wait(train: Train, loader: str) -> None:
    """Pictures are copied from pinned memory, on a stream of their own. The same ones give the same
    losses.
    """
    record = train("ddp", "bf16", loader=loader)
    assert but_memory(waits(record, "step", "batch")) == 0
    if loader == "spdl":
        assert losses(record).tolist() == losses(train("ddp", "bf16")).tolist()


COMPILED = [
    (framework, "default") for framework in (["ddp"] if REAL else registry.members("frameworks"))
]


@pytest.mark.parametrize(("framework", "mode"), [*COMPILED, ("ddp", "reduce-overhead")])
def test_a_compiled_model_trains_the_same_and_waits_no_more(
    train: Train, framework: str, mode: str
) -> None:
    """One program for each size of batch; or CUDA graphs, captured when an epoch's smaller last
    batch comes again.
    """
    compiled = train(framework, "bf16", options={"compile": True, "compile_mode": mode})
    plain = train(framework, "bf16")
    np.testing.assert_allclose(losses(compiled), losses(plain), rtol=0.05 if REAL else 1e-6)
    more = but_memory(waits(compiled, "step", "batch")) - but_memory(waits(plain, "step", "batch"))
    assert more <= CAPTURES if mode == "reduce-overhead" else more == 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_rank_that_is_asked_to_stop_goes_on_to_the_bit(train: Train, variant: str) -> None:
    """In fp16 the scale and the step that was left out go on, too; ZeRO 3 has no fp16 here."""
    framework, options = VARIANTS[variant]
    precision = "bf16" if variant == "zero 3" else "fp16"
    whole, stopped = (
        train(framework, precision, options=options, stop=stop) for stop in (None, 20)
    )
    assert 20 <= stopped.value("ddlbench_resumed")["step"] <= 3 * STEPS
    assert stopped.value("ddlbench_skipped_steps") == whole.value("ddlbench_skipped_steps")
    if REAL:  # sums are not always made in one order
        np.testing.assert_allclose(losses(stopped), losses(whole), rtol=0.02)
    else:
        assert losses(stopped).tolist() == losses(whole).tolist()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_profiled_run_leaves_its_operators_and_weights(train: Train, variant: str) -> None:
    """A real GPU's kernels too; the profiler's own library asks the driver for them, which is not
    pretended.
    """
    framework, options = VARIANTS[variant]
    record = train(framework, "tf32", options=options)
    assert record.kernels is not None
    on = record.kernels["on"].value_counts()
    assert on["cpu"] >= 10
    assert not REAL or on["device"] >= 10
    if framework == "ddp":
        weights = torch.load(record.folder / WEIGHTS, weights_only=True, map_location="cpu")
        assert all(bool(torch.isfinite(tensor).all()) for tensor in weights.values())


@pytest.mark.parametrize("variant", ["ddp", "fsdp", "horovod", "zero 2"])
def test_two_gpus_give_the_losses_of_one(train: Train, variant: str) -> None:
    """By NCCL, as far as it is pretended. Each rank has a GPU of its own."""
    if REAL and torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    framework, options = VARIANTS[variant]
    alone, both = (train(framework, "bf16", options=options, workers=workers) for workers in (1, 2))
    np.testing.assert_allclose(
        losses(both)[:3], losses(alone)[:3], rtol=0.05
    )  # batch norm is of each rank's half


def test_a_record_has_what_a_gpu_says_of_itself_on_the_hosts_time_line(train: Train) -> None:
    """Events add up to the time that passed on the host; what is between the steps of two epochs is
    in no step.
    """
    record = train("ddp", "bf16")
    at = {event.key: event.time_s for event in record.events}
    passed = at["ddlbench_elapsed_s"] - at["run_start"]
    assert record.value("ddlbench_elapsed_s") == pytest.approx(passed, abs=0.05, rel=1e-3)
    rank = record.value("ddlbench_ranks")[0]
    assert (
        0
        < rank["peak_device_memory_bytes"]
        <= rank["peak_device_reserved_bytes"]
        <= rank["device_used_bytes"]
    )
    if not REAL:
        assert rank["device_energy_j"] == pytest.approx(300 * rank["wall_s"], rel=0.1)
        assert [
            rank[f"device_{what}"] for what in ("clock_mhz", "power_limit_w", "temperature_c")
        ] == [1755, 700, 55]


def execute(command: list[str], library: Path, gpus: int = 1, **more: str) -> str:
    """What a process with so many GPUs said, once it ended well."""
    given = os.environ | build.environment(library, None if REAL else gpus) | PATHS | more
    done = subprocess.run(
        command, env=given, cwd=ROOT, capture_output=True, text=True, timeout=300 * shared()
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-20000:]
    return done.stdout


@pytest.mark.parametrize("member", registry.members("inference"))
def test_each_way_to_serve_answers_as_the_plain_model(
    member: str, library: Path, pictures: Path, tmp_path: Path
) -> None:
    way = registry.member("inference", member)
    needs_package(way)
    if REAL and torch.cuda.device_count() < (2 if way.SPLITS else 1):
        pytest.skip("one GPU only")
    workers = 2 if way.SPLITS else 1
    run = run_spec(machine="local", dataset="synthetic-imagenet", device="cuda")
    one = {"trained": False, "workers_per_node": workers, "batches": (1, 5), "repeat": 1}
    spec = InferSpec(run=run, member=member, workers=workers, **one)
    machine = replace(load_machine("local"), device="cuda", workers_per_node=2)
    told = [
        "--folder",
        str(tmp_path),
        "--spec",
        spec.to_json(),
        "--manifest",
        str(pictures / "manifest.json"),
    ]
    command = [
        sys.executable,
        "-m",
        "ddlbench.run.infer",
        *told,
        "--",
        *launch.command(spec, machine, PROGRAM),
    ]
    execute(command, library, workers, TRY_INFERENCE="1")
    record: dict[str, Any] = json.loads((tmp_path / RECORD).read_text())
    assert record["images"] == 33
    assert record["largest_difference"] < (0.1 if member == "int8" else 1e-4)


SEES = """
import json
from ddlbench.preflight import scout
from tests.pretended_gpu import say_gpu

say_gpu()
print(json.dumps(scout.gpus(0)))
"""


def test_the_preflight_sees_the_gpu(library: Path) -> None:
    seen = json.loads(execute([sys.executable, "-c", SEES], library).splitlines()[-1])
    assert seen["gpu"]["name"] == seen["gpus"][0]
    assert seen["gpu"]["memory_bytes"] > 0
    assert seen["cuda"] == torch.version.cuda
