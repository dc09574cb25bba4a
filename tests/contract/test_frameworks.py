"""Every framework with every option trains the same, goes on from a saved state by the bit, and
says what it holds.

Two real ranks a framework (`engines.py`); DeepSpeed's own options are in test_deepspeed_options.py.
"""

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from ddlbench.core import registry
from ddlbench.train import optimizers

from tests.contract.engine_cases import (
    CASES,
    FULL,
    HALF,
    LOUD,
    MAIN,
    MORE,
    RANKS,
    SCALED,
    SLOW_S,
    STEPS,
    Case,
    spec_of,
)
from tests.contract.engine_models import batch_of, model_of
from tests.contract.engines import mean_losses, name_of
from tests.facts import missing

pytestmark = pytest.mark.usefixtures("engine_packages")


@cache
def bare(recipe: str, model: str, steps: int = STEPS) -> tuple[list[float], list[float]]:
    """Losses and norms of gradients of one process with plain PyTorch, on the pictures of all ranks
    together.
    """
    spec = spec_of(CASES[name_of("ddp", recipe, model)])
    net = model_of(model)
    optimizer = optimizers.build(spec.recipe, net)
    losses, norms = [], []
    for step in range(steps):
        x, y = (
            torch.cat(part) for part in zip(*(batch_of(r, step) for r in range(RANKS)), strict=True)
        )
        for group in optimizer.param_groups:
            group["lr"] = spec.recipe.base_lr * (1 - step / 100)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        limit = float("inf") if spec.recipe.clip_norm is None else spec.recipe.clip_norm
        norms.append(float(torch.nn.utils.clip_grad_norm_(net.parameters(), limit)))
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, norms


BARE = [(recipe, "lenet") for recipe in ("sgd", "clip", "accumulate", "adamw", "lars", "lamb")] + [
    ("adamw", "wide")
]
BARE += [(recipe, "loud") for recipe in LOUD]


@pytest.mark.parametrize(("recipe", "model"), [*BARE, ("adamw-accumulate-clip", "lenet")])
def test_ddp_trains_as_one_process_does(results, recipe, model):
    assert mean_losses(results(name_of("ddp", recipe, model))) == pytest.approx(
        bare(recipe, model)[0], rel=1e-5, abs=2e-6
    )


@pytest.mark.parametrize("recipe", LOUD)
def test_loud_gradients_are_far_above_every_default_of_clipping(recipe):
    """Else no test here could tell a framework that clips at 1 from one that does not."""
    assert min(bare(recipe, "loud")[1]) > 2


def test_the_recipes_differ(results):
    """Else the tests above and below could not tell clipping, precision and optimizers from their
    absence.
    """
    last = {recipe: mean_losses(results(name_of("ddp", recipe)))[-1] for recipe in (*FULL, *HALF)}
    assert last["accumulate"] == pytest.approx(last["sgd"], abs=2e-6)
    del last["accumulate"]
    assert len({round(loss, 5) for loss in last.values()}) == len(last)


SAME = [
    n
    for n, c in CASES.items()
    if (c.adapter, c.variant) in [v[:2] for v in MAIN + MORE] and c.variant != "ddp"
]


# How far losses and weights may be off where gradients are not sent as they are.
COMPRESSED = {"horovod-fp16": (1e-3, 3e-3), "ddp-fp16": (1e-3, 3e-3), "ddp-powersgd": (2e-2, 2e-2)}


@pytest.mark.parametrize("name", SAME)
def test_all_frameworks_train_the_same(results, name):
    """By the bit where nothing but the sum of two gradients is computed. Norms are summed in
    another order, and vector code rounds AdamW's last elements of a shard otherwise than those of a
    whole tensor (7e-9 with AVX-512).
    """
    case = CASES[name]
    ours, ddps = results(name), results(name_of("ddp", case.recipe, case.model))
    loss, weight = COMPRESSED.get(case.variant, (1e-6, 1e-6))
    exact = case.variant not in COMPRESSED and case.recipe in ("sgd", "fp16")
    for mine, theirs in zip(ours, ddps, strict=True):
        assert mine["losses"] == (
            theirs["losses"] if exact else pytest.approx(theirs["losses"], abs=loss)
        )
        assert mine["weights"].keys() == theirs["weights"].keys()
        for key, value in theirs["weights"].items():
            torch.testing.assert_close(
                mine["weights"][key], value, atol=0.0 if exact else weight, rtol=0.0
            )


# DeepSpeed's own copies per step for the norm that it clips by, which ZeRO asks for always; and
# under ZeRO it reads whether a gradient overflowed. `tests/host_waits.py` says what is counted.
NORM, OVERFLOW = {"aten.lift_fresh": 2}, {"aten._local_scalar_dense": 1}


@pytest.mark.parametrize("recipe", ["sgd", "adamw-accumulate-clip", "fp16-adamw"])
@pytest.mark.parametrize("variant", [v for _, v, _ in MAIN])
def test_no_step_makes_the_host_wait(results, variant, recipe):
    """AdamW is fused here as on GPUs: under fp16, torch's scaler asks no fused optimizer whether to
    step.
    """
    if (variant, recipe) == ("zero3", "fp16-adamw"):
        pytest.skip("deepspeed refuses fp16 with zero_stage 3")
    zero = variant in ("zero1", "zero2", "zero3")
    allowed = NORM if zero or (variant == "zero0" and "clip" in recipe) else {}
    if zero and recipe == "fp16-adamw":
        allowed = NORM | OVERFLOW
    for of_rank in results(name_of(variant, recipe)):
        assert of_rank["host_waits"] == allowed


def test_a_horovod_without_nccl_is_refused_on_gpus(monkeypatch):
    import horovod.torch as hvd

    lacks = registry.member("frameworks", "horovod").lacks
    monkeypatch.setattr(hvd, "nccl_built", lambda: 0)  # as it is built here
    assert missing(lacks("cuda", {}), "without NCCL") == []
    monkeypatch.setattr(hvd, "nccl_built", lambda: 22907)
    assert lacks("cuda", {}) is None


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_is_the_run(results, name):
    """Other processes, from tensors and numbers that torch loads with weights_only."""
    case = CASES[name]
    for whole, resumed in zip(results(name), results(name, "resumed"), strict=True):
        assert resumed["losses"] == whole["losses"][case.save_at :]
        for key, value in whole["weights"].items():
            assert torch.equal(resumed["weights"][key], value), key
        assert resumed["skipped"] == whole["skipped"]


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if not c.variant.startswith("0/1")])
def test_ranks_hold_the_same_weights(results, name):
    """But for batch norm's statistics, which the loop averages. 0/1 Adam's ranks drift apart by
    rounding: it takes local updates back by subtracting them.
    """
    first, second = results(name)
    differing = [k for k, v in first["weights"].items() if not torch.equal(v, second["weights"][k])]
    assert [key for key in differing if "running_" not in key] == []


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.options.get("zero_stage") == 3])
def test_sharded_weights_are_gathered_whole_each_time(results, name):
    assert all(result["gathered_alike"] for result in results(name))


@pytest.mark.parametrize("variant", [v[1] for v in SCALED])
@pytest.mark.parametrize(
    ("recipe", "model"), [*((recipe, "lenet") for recipe in HALF), ("fp16", "spike")]
)
def test_an_overflow_on_one_rank_leaves_the_step_out_on_all(results, variant, recipe, model):
    assert [r["skipped"] for r in results(name_of(variant, recipe, model))] == [1, 1]


def test_an_overflow_is_only_counted_where_there_was_one(results):
    assert [r["skipped"] for r in results(name_of("ddp", "sgd"))] == [0, 0]


# Bytes per parameter on one of two ranks, in fp32: 4 where all is held, 2 where half is.
# Parameters; gradients, which are computed; the optimizer's state.
HELD = {
    "ddp": (4, 4, 8),
    "ddp-view": (4, 4, 8),
    "ddp-static": (4, 4, 8),
    "horovod": (4, 4, 8),
    "horovod-fp16": (4, 4, 8),
    "zero0": (4, 4, 8),
    "zero1": (4, 4, 6),  # half of two moments and of the parameters that are updated
    "zero2": (4, 2, 6),
    "zero3": (2, 2, 6),
    "offload1": (4, 4, 6),
    "offload2": (4, 2, 6),
    "offload3": (2, 2, 6),
    "offload-parameters": (2, 2, 6),
    "fsdp": (2, 2, 4),
    "fsdp-keep": (2, 2, 4),
}


@pytest.mark.parametrize("variant", [*HELD, *(v for _, v, _ in MAIN if v not in HELD)])
def test_a_rank_holds_its_share(results, variant):
    """Of a framework that HELD does not name: at least its half of everything, no parameter or
    moment twice.
    """
    numbers = sum(p.numel() for p in model_of("wide").parameters())
    for result in results(name_of(variant, "adamw", "wide")):
        held = [
            result["bytes"][k] / numbers
            for k in ("parameters_bytes", "gradients_bytes", "optimizer_bytes")
        ]
        if variant in HELD:
            # Small parameters of ZeRO 3 are whole on every rank.
            assert held == pytest.approx(HELD[variant], rel=0.05)
        else:
            least, most = (2, 2, 4), (4.1, 16, 12.1)
            assert all(
                low <= value <= high for low, value, high in zip(least, held, most, strict=True)
            ), held


def unmeasured(case: Case) -> bool:
    """Whether the framework says that it cannot tell how long a step of this case waits: DeepSpeed
    in one stage only, others always.
    """
    said = "communication_s" in registry.member("frameworks", case.adapter).NOT_MEASURED
    return said and (case.adapter != "deepspeed" or case.options.get("zero_stage") == 3)


@pytest.mark.parametrize("name", CASES)
def test_waiting_is_measured_where_it_can_be_told(results, name):
    case = CASES[name]
    for result in results(name):
        assert len(result["waits"]) == case.steps
        for pairs in result["waits"]:
            if unmeasured(case):
                assert pairs is None
            else:
                assert pairs and all(0 <= start <= end for start, end in pairs)


def seconds(pairs: list[list[float]], within: list[float]) -> float:
    """Of the spans, what lies in another one."""
    return sum(max(0.0, min(end, within[1]) - max(start, within[0])) for start, end in pairs)


@pytest.mark.parametrize(
    "name", [n for n, c in CASES.items() if c.model == "token" and not unmeasured(c)]
)
def test_computing_is_no_wait_whichever_gradient_comes_last(results, name):
    """The first parameter has its gradient SLOW_S before the last one has. On a busy machine a rank
    waits for the other one too, but not both for each other.
    """
    waited = [
        sum(end - start for start, end in pairs)
        for result in results(name)
        for pairs in result["waits"]
    ]
    assert min(waited) < SLOW_S / 2


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize(
    ("slow", "waits", "computes"),
    [("gather", (True, True), (False, False)), ("optimizer", (False, True), (True, False))],
)
def test_gathering_weights_is_a_wait_and_the_optimizer_is_none(
    results, stage, slow, waits, computes
):
    """`waits` and `computes`: whether a rank does so for SLOW_S in the update of each step, by
    rank.
    """
    for rank, result in enumerate(results(name_of(f"zero{stage}-slow-{slow}", "sgd"))):
        waited = [
            seconds(pairs, within)
            for pairs, within in zip(result["waits"], result["updates"], strict=True)
        ]
        took = [end - start for start, end in result["updates"]]
        computed = min(t - w for t, w in zip(took, waited, strict=True))
        # The least of all steps: on a busy machine one may take longer.
        assert (min(waited) > 0.8 * SLOW_S, computed > 0.8 * SLOW_S) == (
            waits[rank],
            computes[rank],
        )
        assert sorted([min(waited), computed])[0] < 0.5 * SLOW_S


def test_one_wait_a_backward_pass_however_many_micro_batches(results):
    for variant in ("ddp", "horovod", "zero0", "zero1"):
        for result in results(name_of(variant, "accumulate")):
            for pairs, (began, ended) in zip(result["waits"], result["updates"], strict=True):
                assert len(pairs) == 1 or sum(start < began for start, _ in pairs) == 1
                assert all(end <= ended for _, end in pairs)
