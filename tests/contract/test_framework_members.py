"""What frameworks say before anything is trained: options, refusals, variables; and the pure parts
of what they do.
"""

import os
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from ddlbench import patches
from ddlbench.core import heartbeats, registry
from ddlbench.core.spec import RunSpec
from ddlbench.patches import deepspeed_on_cpu, timm_layer_dropping
from ddlbench.patches.loss_scale import SkippedSteps
from ddlbench.plan import launch
from ddlbench.settings.keys import class_of, value_of
from ddlbench.settings.machine import load_machine
from ddlbench.train.clock import Clock
from ddlbench.train.frameworks import _deepspeed_options, deepspeed

from tests.builders.plans import infer_spec
from tests.contract.engine_cases import Case, spec_of

FRAMEWORKS = registry.members("frameworks")


def spec(
    adapter: str, model: str = "resnet18", workers: int = 2, options: Any = None, **recipe: Any
) -> RunSpec:
    """A run of a variant; keywords are the recipe's."""
    run = spec_of(Case(adapter, "variant", "sgd", options=options or {}))
    return replace(run, model=model, workers=workers, recipe=replace(run.recipe, **recipe))


@pytest.mark.parametrize("adapter", FRAMEWORKS)
def test_options_are_schemas_with_a_default_that_they_allow(adapter):
    options = registry.options(adapter)
    assert all(rule["description"] for rule in options.values())
    value_of(class_of(options), registry.option_defaults(adapter), "study.yaml")


@pytest.mark.parametrize("adapter", FRAMEWORKS)
@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("clip_norm", [None, 1.0])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "lars", "lamb"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_nothing_is_refused_by_default(adapter, accumulation, clip_norm, optimizer, precision):
    recipe = {
        "accumulation": accumulation,
        "clip_norm": clip_norm,
        "optimizer": optimizer,
        "precision": precision,
    }
    assert registry.member("frameworks", adapter).refuses(spec(adapter, **recipe)) is None


class OlderDDP:
    """What torch 2.11 takes."""

    def __init__(
        self, module: Any, device_ids: Any = None, broadcast_buffers: bool = True, **other: Any
    ) -> None:
        assert "forward_sync_buffers" not in other
        self.broadcasts = broadcast_buffers


class NewerDDP(OlderDDP):
    """What torch 2.13 takes, which deprecates the other."""

    def __init__(
        self, module: Any, broadcast_buffers: Any = None, forward_sync_buffers: Any = None, **_: Any
    ) -> None:
        assert broadcast_buffers is None
        self.broadcasts = forward_sync_buffers


@pytest.mark.parametrize("ddp", [OlderDDP, NewerDDP])
def test_ddp_broadcasts_no_buffers_by_whichever_word_torch_knows(
    ddp: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.nn.parallel.DistributedDataParallel", ddp)
    model = torch.nn.Linear(2, 2)
    run = replace(spec("ddp"), device="cpu")
    engine = registry.member("frameworks", "ddp").Engine(
        model, lambda module: torch.optim.SGD(module.parameters(), lr=0.1), run, Clock("cpu")
    )
    assert engine.ddp.broadcasts is False


DROPPING = {"progressive_layer_dropping": True}
LAYERS, VIT = "progressive_layer_dropping", {"model": "vit_small_patch16_224"}
POWER = {"compression": "powersgd"}
OVERLAP = {"overlap_comm": True}
GRAPHS = {"compile": True, "compile_mode": "reduce-overhead"}
BIT, ADAMW, FP16, CLIPPED = (
    {"compression": "1-bit-adam"},
    {"optimizer": "adamw"},
    {"precision": "fp16"},
    {"clip_norm": 1},
)


def zero(stage: int, offload: str | None = None) -> dict[str, Any]:
    """DeepSpeed's options for a stage."""
    return {"zero_stage": stage, **({"offload": offload} if offload else {})}


# framework, options, what is special about the run, what the refusal says, and what would be
# allowed in its place.
REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], str, dict[str, Any]]] = [
    ("ddp", {"static_graph": True}, {"accumulation": 2}, "static_graph", {"accumulation": 1}),
    *(
        (name, GRAPHS, {"accumulation": 2}, "compile_mode", {"accumulation": 1})
        for name in FRAMEWORKS
    ),
    ("ddp", POWER, FP16, "compression", {"precision": "bf16"}),
    ("ddp", POWER | {"static_graph": True}, {}, "compression", {"options": POWER}),
    ("fsdp", {"channels_last": True}, {}, "channels_last", {"options": {}}),
    ("horovod", {"channels_last": True}, {}, "channels_last", {"options": {}}),
    ("deepspeed", {"bucket_mb": 1}, {}, "bucket_mb", {"options": {"bucket_mb": 1} | zero(1)}),
    ("deepspeed", OVERLAP, {}, "overlap_comm", {"options": OVERLAP | zero(1)}),
    ("deepspeed", OVERLAP | zero(3), {}, "overlap_comm", {"options": OVERLAP | zero(2)}),
    ("deepspeed", {"offload": "optimizer"}, {}, "offload", {"options": zero(1, "optimizer")}),
    ("deepspeed", zero(2, "parameters"), {}, "offload", {"options": zero(3, "parameters")}),
    ("deepspeed", zero(1), {"optimizer": "lars"}, "zero_stage", {"options": zero(0)}),
    ("deepspeed", zero(3), FP16, "zero_stage", {"options": zero(2)}),
    ("deepspeed", zero(1, "optimizer"), FP16, "zero_stage", {"options": zero(1)}),
    ("deepspeed", BIT, {"optimizer": "sgd"}, "compression", ADAMW),
    ("deepspeed", {"compression": "0/1-adam"}, {"optimizer": "lamb"}, "compression", ADAMW),
    ("deepspeed", {"compression": "1-bit-lamb"}, ADAMW, "compression", {"optimizer": "lamb"}),
    ("deepspeed", BIT | zero(1), ADAMW, "compression", {"options": BIT}),
    ("deepspeed", BIT, ADAMW | FP16, "compression", {"precision": "bf16"}),
    ("deepspeed", BIT, ADAMW | CLIPPED, "compression", {"clip_norm": None}),
    ("deepspeed", DROPPING, {"model": "resnet50"}, LAYERS, VIT),
    ("deepspeed", DROPPING | zero(3), VIT, LAYERS, {"options": DROPPING | zero(2)}),
    ("deepspeed", DROPPING | {"compile": True}, VIT, LAYERS, {"options": DROPPING}),
]


@pytest.mark.parametrize(("adapter", "options", "special", "said", "instead"), REFUSED)
def test_what_cannot_be_trained_is_refused_by_the_options_name(
    adapter, options, special, said, instead
):
    refuses = registry.member("frameworks", adapter).refuses
    reason = refuses(spec(adapter, **{"options": options} | special))
    assert reason is not None and reason.startswith(f"option {said}: ") and "\n" not in reason
    assert refuses(spec(adapter, **{"options": options} | special | instead)) is None


def test_horovods_options_are_variables():
    machine = replace(load_machine("local"), environment=(("GLOO_SOCKET_IFNAME", "ib0"),))
    run = spec("horovod", options={"fusion_threshold_mb": 2, "cycle_time_ms": 0.5})
    assert registry.member("frameworks", "horovod").environment(run, machine) == {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_FUSION_THRESHOLD": "2097152",
        "HOROVOD_CYCLE_TIME": "0.5",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "120",
        "HOROVOD_GLOO_IFACE": "ib0",
    }
    tuned = registry.member("frameworks", "horovod").environment(
        spec("horovod", options={"autotune": True}), machine
    )
    assert tuned["HOROVOD_AUTOTUNE"] == "1"
    assert not {"HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME"} & {
        *tuned
    }  # it leaves alone what is set


@pytest.mark.parametrize("adapter", registry.members("frameworks"))
def test_ranks_wait_as_long_as_the_machines_file_says(adapter):
    """And until a silent one is noticed: else they end first, and the silent one, ended for it,
    would look killed.
    """
    machine = load_machine("local")
    for patient, least_s in (
        (machine, 2 * heartbeats.noticed_s(heartbeats.SILENT_S, 1)),
        (replace(machine, start_timeout_s=600), 600),
        (replace(machine, silent_s=200), 400),
    ):
        waits = registry.member("frameworks", adapter).environment(spec(adapter), patient)
        name = "HOROVOD_GLOO_TIMEOUT_SECONDS" if adapter == "horovod" else "DDLBENCH_TIMEOUT_S"
        assert least_s <= float(waits[name]) < 1.5 * least_s


def test_layers_are_kept_as_often_as_the_paper_says():
    """Algorithm 1 of arXiv:2010.13369: the first always, the others less the deeper they lie."""
    chances = [timm_layer_dropping.keep_probability(i, 4, 0.5) for i in range(4)]
    assert chances == [1, 0.875, 0.75, 0.625]
    draws = np.array([timm_layer_dropping.decisions(4, 0.5, 7, step, 0) for step in range(4000)])
    assert draws.mean(axis=0) == pytest.approx(chances, abs=0.03)


def test_layers_are_drawn_from_the_seed_the_step_and_the_part_alone():
    def draws(seed: int, part: int) -> list[list[bool]]:
        return [timm_layer_dropping.decisions(12, 0.5, seed, step, part) for step in range(50)]

    assert draws(1, 0) == draws(1, 0)
    assert draws(1, 0) != draws(2, 0)
    assert draws(1, 0) != draws(1, 1)


class Block(torch.nn.Module):
    """A block of two branches, each of which adds one."""

    def __init__(self) -> None:
        super().__init__()
        self.drop_path1, self.drop_path2 = torch.nn.Identity(), torch.nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.drop_path1(torch.ones(1))
        return x + self.drop_path2(torch.ones(1))


def test_a_kept_block_adds_more_and_a_dropped_one_nothing():
    model = torch.nn.Module()
    model.blocks = torch.nn.Sequential(Block(), Block())
    dropping = timm_layer_dropping.LayerDropping(model, seed=0)
    assert model.blocks(torch.zeros(1)) == 4
    seen = set()
    for step in range(20):
        dropping.draw(0.5, step, 0)  # the second block is kept with 0.75
        seen.add(round(float(model.blocks(torch.zeros(1))), 5))
    assert seen == {2.0, round(2 + 2 / 0.75, 5)}
    dropping.keep_all()
    assert model.blocks(torch.zeros(1)) == 4


def test_dropping_needs_blocks_of_two_branches():
    with pytest.raises(ValueError, match="two branches"):
        timm_layer_dropping.LayerDropping(torch.nn.Linear(1, 1), seed=0)


def test_bits_are_packed_as_signs():
    numbers = torch.tensor([1.0, -2.0, 0.0, -0.5, 3.0, -1.0, -1.0, 2.0] * 2)
    packed = deepspeed_on_cpu.Packer.packbits(numbers, 16, 0)
    assert packed.dtype == torch.uint8 and packed.tolist() == [0b10101001] * 2
    signs = deepspeed_on_cpu.Packer.unpackbits(packed, 2, 0)
    assert signs.dtype == torch.float32 and signs.tolist() == [1, -1, 1, -1, 1, -1, -1, 1] * 2


def test_deepspeed_is_told_all_that_it_would_choose_itself():
    settings = _deepspeed_options.settings
    plain = settings(spec("deepspeed"), numbers=1000)
    assert plain["gradient_clipping"] == 0.0  # DeepSpeed's own default is 1
    assert plain["zero_optimization"]["reduce_bucket_size"] == 1000  # and 2 GB
    assert plain["timers"] == {
        "throughput": {"enabled": False}
    }  # it would synchronise the GPU twice in each step
    run = spec(
        "deepspeed",
        options={"zero_stage": 3, "offload": "parameters"},
        accumulation=4,
        clip_norm=2.0,
    )
    assert (run.batch_per_worker, settings(run, 1000)["train_micro_batch_size_per_gpu"]) == (8, 2)
    assert settings(run, 1000)["gradient_clipping"] == 2.0
    assert settings(run, 1000)["zero_optimization"]["offload_param"]["device"] == "cpu"


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_what_a_variant_does_not_say_is_deepspeeds_own_default(stage):
    """Whether it overlaps depends on the stage: false with ZeRO 1 and 2, true with 3."""
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    ours = _deepspeed_options.settings(spec("deepspeed", options=zero(stage)), numbers=1000)[
        "zero_optimization"
    ]
    whole, default = DeepSpeedZeroConfig(**ours), DeepSpeedZeroConfig(stage=stage)
    names = (
        "overlap_comm",
        "contiguous_gradients",
        "allgather_bucket_size",
        "reduce_scatter",
        "round_robin_gradients",
    )
    assert {name: getattr(whole, name) for name in names} == {
        name: getattr(default, name) for name in names
    }
    assert (whole.overlap_comm, whole.contiguous_gradients) == (stage == 3, True)


def test_an_optimizer_on_the_host_has_the_cores_that_loaders_leave():
    machine = replace(load_machine("juwels-booster"), cores_per_worker=12, loader_threads=4)
    environment = registry.member("frameworks", "deepspeed").environment
    alone, moved = (
        spec("deepspeed", options=options) for options in (zero(2), zero(2, "optimizer"))
    )
    assert "OMP_NUM_THREADS" not in environment(alone, machine)
    assert environment(moved, machine)["OMP_NUM_THREADS"] == "8"
    assert launch.environment(moved, machine)["OMP_NUM_THREADS"] == "8"
    said = replace(machine, environment=(("OMP_NUM_THREADS", "3"),))
    assert launch.environment(moved, said)["OMP_NUM_THREADS"] == "3"
    busy = replace(machine, loader_threads=12)
    assert environment(moved, busy)["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in environment(moved, load_machine("local"))
    assert (
        launch.environment(infer_spec(member="deepspeed-engine"), machine)["OMP_NUM_THREADS"] == "1"
    )


@pytest.mark.parametrize("stage", [1, 2])
def test_zero_overlaps_where_a_variant_says_so(stage):
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    run = spec("deepspeed", options=zero(stage) | OVERLAP)
    assert DeepSpeedZeroConfig(
        **_deepspeed_options.settings(run, numbers=1000)["zero_optimization"]
    ).overlap_comm


def test_the_size_of_gathers_is_nothing_that_deepspeed_heeds():
    """Why there is no option allgather_bucket_size: with torch's all_gather_into_tensor all is
    gathered at once.
    """
    from deepspeed.runtime import utils

    sent = []

    class Comm:
        def __getattr__(self, name):
            return lambda *args, **kwargs: (
                sent.append(name) or (2 if name == "get_world_size" else name[:3] == "has")
            )

    whole = torch.zeros(64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "dist", Comm())
        utils.all_gather_dp_groups([whole], [[*whole.chunk(2)]], [None], 2, allgather_bucket_size=8)
    assert sent.count("all_gather_into_tensor") == 1
    assert "all_gather" not in sent


def test_fsdp_gathers_stages_block_by_block():
    from ddlbench.train.frameworks.fsdp import blocks

    stage = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.ReLU(), torch.nn.Linear(1, 1))
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), stage, torch.nn.Flatten())
    assert list(blocks(model)) == [model[0], stage[0], stage[2]]


def test_one_bit_optimizers_need_cupy_on_gpus(monkeypatch):
    lacks, options = (
        registry.member("frameworks", "deepspeed").lacks,
        registry.option_defaults("deepspeed"),
    )
    monkeypatch.setattr(registry, "importable", lambda package: package != "cupy")
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    reason = lacks("cuda", options | {"compression": "1-bit-adam"})
    assert (
        reason.startswith("option compression: 1-bit-adam: ")
        and "pip install cupy-cuda13x" in reason
    )
    assert lacks("cuda", options) is None
    assert lacks("cpu", options | {"compression": "1-bit-adam"}) is None


@pytest.mark.parametrize(("release", "refused"), [("0.19.9+cu130", False), ("0.20.0", True)])
def test_another_deepspeed_is_named_before_ranks_meet(monkeypatch, release, refused):
    monkeypatch.setattr(patches.registry, "release", lambda _: release)
    reason = registry.member("frameworks", "deepspeed").lacks(
        "cpu", registry.option_defaults("deepspeed")
    )
    assert (reason is not None) == refused
    assert not refused or ("deepspeed 0.20.0 " in reason and "allowed: 0.19" in reason)


@pytest.mark.parametrize("adapter", ["ddp", "deepspeed", "fsdp"])
def test_gpus_need_nccl(monkeypatch, adapter):
    member = registry.member("frameworks", adapter)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    assert "built without NCCL" in member.lacks("cuda", registry.option_defaults(adapter))
    assert member.lacks("cpu", registry.option_defaults(adapter)) is None


def test_deepspeed_takes_the_gpu_that_is_current(monkeypatch):
    """Its engine takes the GPU with LOCAL_RANK's number: rank 3 of a node may see a single one,
    number 0.
    """
    asked = []
    stand_in: Any = ModuleType("deepspeed")
    stand_in.init_distributed = lambda backend, timeout, verbose: asked.append(
        (backend, os.environ["LOCAL_RANK"])
    )
    monkeypatch.setitem(sys.modules, "deepspeed", stand_in)
    monkeypatch.setitem(sys.modules, "deepspeed.ops", ModuleType("deepspeed.ops"))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setenv("LOCAL_RANK", "3")
    registry.member("frameworks", "deepspeed").start("cuda")
    assert asked == [("nccl", "0")]


SKIPPED = 3  # steps that an overflow left out before the run was stopped


def engine_of(adapter: str) -> Any:
    """An engine without the processes of its framework: what it saves and loads is there."""
    member, model = registry.member("frameworks", adapter), torch.nn.Linear(2, 1)
    engine = member.Engine.__new__(member.Engine)
    engine.model, engine.optimizer = model, torch.optim.SGD(model.parameters(), lr=0.1)
    engine.scaler = torch.amp.GradScaler("cpu")
    engine.skipped = SkippedSteps(engine.scaler)
    engine.power = None
    if adapter == "deepspeed":
        engine.stage, engine.zero, engine.compressed = 0, None, False
        engine.engine = SimpleNamespace(**dict.fromkeys(deepspeed.COUNTERS, 0))
    return engine


@pytest.mark.parametrize("adapter", FRAMEWORKS)
def test_skipped_steps_are_counted_on(adapter):
    """A run that goes on says how many steps were left out since its beginning."""
    before, after = engine_of(adapter), engine_of(adapter)
    before.skipped.before = SKIPPED
    after.load(before.state())
    assert after.skipped_steps == SKIPPED
