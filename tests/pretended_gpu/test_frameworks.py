"""Every framework on the pretended GPU: the CPU's losses, goes on to the bit, and waits as often as is known."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from ddlbench.analysis.record import Record
from ddlbench.core.record import STEP_PARTS

from tests.pretended_gpu.conftest import STEPS, Train
from tests.pretended_gpu.rank import STEADY, WAITS

pytestmark = pytest.mark.slow
# A framework and its options.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ddp": ("ddp", {}),
    "ddp, channels last": ("ddp", {"channels_last": True}),
    "fsdp": ("fsdp", {}),
    "zero 1": ("deepspeed", {"zero_stage": 1}),
}
NEAR = {"fp32": 1e-4, "bf16": 0.02}  # relative, to the CPU's in fp32
PAIRS = [(variant, precision) for variant in VARIANTS for precision in NEAR]
# Waits of a rank, docs/gpus.md has the table. In each validation the counts are read; ranks agree about five numbers.
VALIDATION, AGREEMENT, ROWS = 2, 5, 8
DDP_LOG = 8  # in each of steps 2 to 11 DDP times itself for its own log
PINNED = "cudaHostAlloc"  # PyTorch keeps pinned memory: each size is asked for once


def waits(record: Record, phase: str) -> Counter[str]:
    """What made a rank wait in a phase, by what and where."""
    said = record.said(WAITS)["waits"].get(phase, {})
    return Counter({what: number for what, number in said.items() if not what.startswith(PINNED)})


def losses(record: Record) -> np.ndarray:
    return record.steps.groupby("step")["loss"].sum().to_numpy()


@pytest.mark.parametrize(("variant", "precision"), PAIRS)
def test_losses_are_those_of_a_cpu_and_parts_are_the_step(train: Train, variant: str, precision: str) -> None:
    framework, options = VARIANTS[variant]
    alike = options if framework == "ddp" else {}  # channels last adds up in another order
    there, here = train(framework, precision, options=options), train("ddp", device="cpu", options=alike)
    np.testing.assert_allclose(losses(there), losses(here), rtol=NEAR[precision])
    took = there.steps[[*STEP_PARTS]].sum(axis=1).to_numpy()[1:STEPS]
    np.testing.assert_allclose(took, np.diff(there.steps["end_s"].to_numpy()[:STEPS]), rtol=1e-6, atol=2e-6)
    assert there.said(WAITS)["elsewhere"] == 0  # all that is timed lies on the stream that computes


@pytest.mark.parametrize("variant", ["ddp", "fsdp"])
def test_no_step_waits(train: Train, variant: str) -> None:
    """Nor does the first epoch, but for DDP's log of itself and the two copies with which it begins."""
    record = train(VARIANTS[variant][0], "bf16")
    assert waits(record, "step") == {}
    first = waits(record, "first steps")
    log = first.pop(
        "cudaEventSynchronize < train/frameworks/ddp.py:__call__ < torch/nn/parallel/distributed.py:_pre_forward", 0
    )
    assert log == (DDP_LOG * (STEADY - 2) if variant == "ddp" else 0)
    assert sum(first.values()) <= (6 if variant == "ddp" else 0)


@pytest.mark.parametrize("variant", ["ddp", "fsdp"])
def test_what_is_done_now_and_then_waits_as_often_as_is_known(train: Train, variant: str) -> None:
    record = train(VARIANTS[variant][0], "bf16")
    assert sum(waits(record, "validation").values()) == VALIDATION * 3
    assert sum(waits(record, "rows").values()) == ROWS * 3
    assert sum(waits(record, "agreement").values()) % AGREEMENT == 0


def test_a_rank_that_is_asked_to_stop_goes_on_to_the_bit(train: Train) -> None:
    whole, stopped = train("ddp", "bf16"), train("ddp", "bf16", stop=20)
    assert 20 <= stopped.said("ddlbench_resumed")["step"] <= 3 * STEPS
    assert losses(stopped).tolist() == losses(whole).tolist()


def test_two_gpus_give_the_losses_of_one(train: Train) -> None:
    """By NCCL, as far as it is pretended. Each rank has a GPU of its own."""
    alone, both = train("fsdp", "fp32"), train("fsdp", "fp32", workers=2)
    np.testing.assert_allclose(losses(both)[:3], losses(alone)[:3], rtol=0.05)  # batch norm is of each rank's half


def test_what_a_gpu_says_of_itself_is_in_the_record(train: Train) -> None:
    rank = train("ddp", "bf16").said("ddlbench_ranks")[0]
    assert rank["device_energy_j"] == pytest.approx(300 * rank["wall_s"], rel=0.1)
    assert (rank["device_clock_mhz"], rank["device_power_limit_w"], rank["device_temperature_c"]) == (1755, 700, 55)
    assert 0 < rank["peak_device_memory_bytes"] <= rank["peak_device_reserved_bytes"] <= rank["device_used_bytes"]
