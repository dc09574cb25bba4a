"""The small trainings that `engine_probe.py` drives a framework's engine through, as values."""

import os
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from ddlbench.core import registry
from ddlbench.core.spec import RunSpec
from ddlbench.patches import ReleaseError, deepspeed_one_bit, timm_layer_dropping
from ddlbench.settings.recipe import load_recipe

from tests.builders.plans import run_spec

RANKS, BATCH, STEPS, SAVE_AT = int(os.environ.get("PROBE_RANKS", "2")), 8, 6, 3
# One rank's loss is made this much larger in one step, where fp16 then overflows.
OVERFLOW_AT, OVERFLOW = 1, 1e8
RECIPES: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd", "base_lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3},
    "adamw": {"optimizer": "adamw", "base_lr": 1e-3, "weight_decay": 0.05},
}
RECIPES["clip"] = RECIPES["sgd"] | {"clip_norm": 0.1}
RECIPES["accumulate"] = RECIPES["sgd"] | {"accumulation": 2}
RECIPES["adamw-accumulate-clip"] = RECIPES["adamw"] | {"accumulation": 2, "clip_norm": 0.1}
RECIPES["bf16"] = RECIPES["sgd"] | {"precision": "bf16"}
RECIPES["fp16"] = RECIPES["sgd"] | {"precision": "fp16"}
RECIPES["fp16-accumulate-clip"] = RECIPES["fp16"] | {"accumulation": 2, "clip_norm": 0.1}
RECIPES["fp16-adamw"] = RECIPES["adamw"] | {"precision": "fp16"}
RECIPES["lamb"] = RECIPES["adamw"] | {"optimizer": "lamb", "base_lr": 3e-3}
RECIPES["lars"] = RECIPES["sgd"] | {"optimizer": "lars", "base_lr": 1.0}
FULL = ("sgd", "clip", "accumulate", "adamw", "adamw-accumulate-clip", "bf16")
LAYERED = ("lars", "lamb")
FEW = ("sgd", "adamw-accumulate-clip")
# Gradients of this model are far above 1: whoever clips them without being told to trains something
# else.
LOUD = ("sgd", "adamw", "lars", "lamb")
HALF = ("fp16", "fp16-accumulate-clip", "fp16-adamw")


@dataclass(frozen=True)
class Case:
    """A small training by one variant of a framework."""

    adapter: str
    variant: str
    recipe: str
    model: str = "lenet"
    options: dict[str, Any] = field(default_factory=dict)
    steps: int = STEPS
    save_at: int = SAVE_AT
    slow: str = ""  # what takes SLOW_S longer: ZeRO's gather, or the optimizer of rank 0

    @property
    def launch(self) -> tuple[str, Any]:
        """Cases of one launch have this in common."""
        return self.adapter, "autotune" if self.options.get("autotune") else None

    @property
    def name(self) -> str:
        return f"{self.variant}-{self.recipe}-{self.model}".replace("/", "")


# What of a framework trains every recipe: all members of the room by their default options,
# DeepSpeed by stage.
STAGES: list[tuple[str, str, dict[str, Any]]] = [
    ("deepspeed", f"zero{stage}", {"zero_stage": stage}) for stage in range(4)
]
# (framework, variant, its options): those that train every recipe, and those for which a few will
# do.
MAIN: list[tuple[str, str, dict[str, Any]]] = [
    variant
    for name in registry.members("frameworks")
    for variant in (STAGES if name == "deepspeed" else [(name, name, {})])
]
MORE: list[tuple[str, str, dict[str, Any]]] = [
    ("ddp", "ddp-view", {"gradient_as_bucket_view": True, "bucket_mb": 0.01}),
    ("ddp", "ddp-static", {"static_graph": True}),
    ("ddp", "ddp-fp16", {"compression": "fp16"}),
    ("ddp", "ddp-powersgd", {"compression": "powersgd", "powersgd_start": 2, "powersgd_rank": 4}),
    ("horovod", "horovod-autotune", {"autotune": True}),
    ("deepspeed", "zero1-buckets", {"zero_stage": 1, "bucket_mb": 0.01}),
    ("deepspeed", "zero2-buckets", {"zero_stage": 2, "bucket_mb": 0.01}),
    ("deepspeed", "zero1-overlap", {"zero_stage": 1, "bucket_mb": 0.01, "overlap_comm": True}),
    ("deepspeed", "zero2-overlap", {"zero_stage": 2, "bucket_mb": 0.01, "overlap_comm": True}),
    ("deepspeed", "zero3-buckets", {"zero_stage": 3, "bucket_mb": 0.01}),
    ("horovod", "horovod-fp16", {"compression": "fp16"}),
    ("deepspeed", "offload1", {"zero_stage": 1, "offload": "optimizer"}),
    ("deepspeed", "offload2", {"zero_stage": 2, "offload": "optimizer"}),
    ("deepspeed", "offload3", {"zero_stage": 3, "offload": "optimizer"}),
    ("deepspeed", "offload-parameters", {"zero_stage": 3, "offload": "parameters"}),
    ("fsdp", "fsdp-keep", {"reshard_after_forward": False}),
]
WHOLE = [v for v in MAIN if v[1] not in ("zero1", "zero2", "zero3")]
SCALED = [v for v in MAIN if v[1] != "zero3"]
ONE_BIT = {"1-bit-adam": "adamw", "1-bit-lamb": "lamb", "0/1-adam": "adamw"}
FREEZE, LONG = 8, 24
THETA, GAMMA = 0.5, 0.2
SLOW_S = 0.1  # what is planted takes so long


def _cases() -> list[Case]:
    cases = [Case(a, v, recipe, options=o) for a, v, o in MAIN for recipe in FULL]
    cases += [
        Case(a, v, recipe, options=o)
        for a, v, o in MORE
        for recipe in FEW
        if (v, recipe) != ("ddp-static", FEW[1])
    ]
    cases += [Case(a, v, recipe, options=o) for a, v, o in WHOLE for recipe in LAYERED]
    cases += [Case(a, v, recipe, options=o) for a, v, o in SCALED for recipe in HALF]
    cases += [Case(a, v, "fp16", "spike", o) for a, v, o in SCALED]
    cases += [Case(a, v, "sgd", "norm", o) for a, v, o in MAIN]
    loud = [
        (variant, recipe) for recipe in LOUD for variant in (WHOLE if recipe in LAYERED else MAIN)
    ]
    cases += [Case(a, v, recipe, "loud", o) for (a, v, o), recipe in loud]
    cases += [Case(a, v, "adamw", "wide", o) for a, v, o in MAIN + MORE]
    cases += [Case(a, v, "sgd", "token", o) for a, v, o in MAIN]
    for stage, slow in product((1, 2), ("gather", "optimizer")):
        cases.append(
            Case(
                "deepspeed",
                f"zero{stage}-slow-{slow}",
                "sgd",
                options={"zero_stage": stage},
                slow=slow,
            )
        )
    for compression, recipe in ONE_BIT.items():
        for when, freeze in (("late", 100), ("early", FREEZE)):
            options = {"compression": compression, "freeze_step": freeze}
            # What is saved before anything is compressed, and what is saved after.
            for save_at in (SAVE_AT, LONG - 3) if when == "early" else (SAVE_AT,):
                variant = f"{compression}-{when}" + ("" if save_at == SAVE_AT else "-saved")
                cases.append(Case("deepspeed", variant, recipe, "linear", options, LONG, save_at))
    dropping = {
        "progressive_layer_dropping": True,
        "layer_dropping_theta": THETA,
        "layer_dropping_gamma": GAMMA,
    }
    for stage in range(3):
        cases.append(
            Case(
                "deepspeed",
                f"dropping{stage}",
                "adamw",
                "vit",
                dropping | {"zero_stage": stage},
                LONG,
            )
        )
    dropping |= {"zero_stage": 0}
    cases.append(Case("deepspeed", "dropping-parts", "accumulate", "vit", dropping))
    cases.append(
        Case("deepspeed", "tables", "sgd", options={"flops_profiler": True, "comms_logger": True})
    )
    return cases


def _is_lost(case: Case) -> bool:
    """Whether the DeepSpeed that is installed no longer has the options that this case tries."""
    try:
        if "compression" in case.options and case.adapter == "deepspeed":
            deepspeed_one_bit.guard()
        if "progressive_layer_dropping" in case.options:
            timm_layer_dropping.guard()
    except ReleaseError:
        return True
    return False


CASES = {case.name: case for case in _cases() if not _is_lost(case)}


def spec_of(case: Case) -> RunSpec:
    """The case as a run."""
    recipe = replace(
        load_recipe("demo").at(RANKS * BATCH),
        precision="fp32",
        clip_norm=None,
        accumulation=1,
        seed=1,
    )
    recipe = replace(recipe, decay_norm_and_bias=False)
    return run_spec(
        machine="local",
        model="vit_tiny_patch16_224" if case.model == "vit" else case.model,
        recipe=replace(recipe, **RECIPES[case.recipe]),
        framework=case.variant,
        workers=RANKS,
        global_batch=RANKS * BATCH,
        epochs=1,
        options=(("framework", case.adapter), *sorted(case.options.items())),
    )
