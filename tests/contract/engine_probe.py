"""One rank of a launch that drives a framework's engine through many small trainings; `engines.py` starts it.

    <launcher> python -m tests.contract.engine_probe <folder> first|resumed <case> ...

`first` takes all steps of every case and saves a state on the way; `resumed` are other processes, which
load it and take the rest. Each case leaves `<case>-<first|resumed>-<rank>.pt`.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from ddlbench.core import registry
from ddlbench.core.spec import RunSpec
from ddlbench.mends import torchvision_operators
from ddlbench.settings.recipe import load_recipe
from ddlbench.train import models, optimizers, place
from ddlbench.train.clock import Clock
from torch import nn

from tests.contract.weights import whole
from tests.host_waits import HostWaits
from tests.specs import run_spec

RANKS, BATCH, STEPS, SAVE_AT = int(os.environ.get("PROBE_RANKS", "2")), 8, 6, 3
GATHERED = 10  # times that weights are asked for: DeepSpeed gathered some of them wrong now and then
# One rank's loss is made this much larger in one step, where fp16 then overflows.
OVERFLOW_AT, OVERFLOW = 1, 1e8
RECIPES: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd", "base_lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3},
    "adamw": {"optimizer": "adamw", "base_lr": 1e-3, "weight_decay": 0.05},
}
RECIPES["plain-sgd"] = {"optimizer": "sgd", "base_lr": 0.05, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0}
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
# Gradients of this model are far above 1: whoever clips them without being told to trains something else.
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
        return self.adapter, self.options.get("controller")

    @property
    def name(self) -> str:
        return f"{self.variant}-{self.recipe}-{self.model}".replace("/", "")


# What of a framework trains every recipe: all members of the room by their default options, DeepSpeed by stage.
STAGES: list[tuple[str, str, dict[str, Any]]] = [
    ("deepspeed", f"zero{stage}", {"zero_stage": stage}) for stage in range(4)
]
# (framework, variant, its options): those that train every recipe, and those for which a few will do.
MAIN: list[tuple[str, str, dict[str, Any]]] = [
    variant
    for name in registry.members("frameworks")
    for variant in (STAGES if name == "deepspeed" else [(name, name, {})])
]
MORE: list[tuple[str, str, dict[str, Any]]] = [
    ("ddp", "ddp-view", {"gradient_as_bucket_view": True, "bucket_mb": 0.01}),
    ("ddp", "ddp-static", {"static_graph": True}),
    ("horovod", "horovod-fp16", {"compression": "fp16"}),
    ("horovod", "horovod-mpi", {"controller": "mpi"}),
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
        Case(a, v, recipe, options=o) for a, v, o in MORE for recipe in FEW if (v, recipe) != ("ddp-static", FEW[1])
    ]
    cases += [Case(a, v, recipe, options=o) for a, v, o in WHOLE for recipe in LAYERED]
    cases += [Case(a, v, recipe, options=o) for a, v, o in SCALED for recipe in HALF]
    cases += [Case(a, v, "fp16", "spike", o) for a, v, o in SCALED]
    cases += [Case(a, v, "sgd", "norm", o) for a, v, o in MAIN]
    loud = [(variant, recipe) for recipe in LOUD for variant in (WHOLE if recipe in LAYERED else MAIN)]
    cases += [Case(a, v, recipe, "loud", o) for (a, v, o), recipe in loud]
    cases += [Case(a, v, "adamw", "wide", o) for a, v, o in MAIN + MORE]
    cases += [Case(a, v, "sgd", "token", o) for a, v, o in MAIN]
    for stage, slow in product((1, 2), ("gather", "optimizer")):
        cases.append(Case("deepspeed", f"zero{stage}-slow-{slow}", "sgd", options={"zero_stage": stage}, slow=slow))
    for compression, recipe in ONE_BIT.items():
        for when, freeze in (("late", 100), ("early", FREEZE)):
            options = {"compression": compression, "freeze_step": freeze}
            # What is saved before anything is compressed, and what is saved after.
            for save_at in (SAVE_AT, LONG - 3) if when == "early" else (SAVE_AT,):
                variant = f"{compression}-{when}" + ("" if save_at == SAVE_AT else "-saved")
                cases.append(Case("deepspeed", variant, recipe, "linear", options, LONG, save_at))
    dropping = {"progressive_layer_dropping": True, "layer_dropping_theta": THETA, "layer_dropping_gamma": GAMMA}
    for stage in range(3):
        cases.append(Case("deepspeed", f"dropping{stage}", "adamw", "vit", dropping | {"zero_stage": stage}, LONG))
    dropping |= {"zero_stage": 0}
    cases.append(Case("deepspeed", "dropping-parts", "accumulate", "vit", dropping))
    adasum = {"controller": "mpi", "reduction": "adasum"}
    cases += [Case("horovod", "adasum", recipe, options=adasum) for recipe in ("plain-sgd", "adamw", "accumulate")]
    cases.append(Case("horovod", "adasum", "adamw", "wide", adasum))
    cases.append(Case("deepspeed", "tables", "sgd", options={"flops_profiler": True, "comms_logger": True}))
    return cases


CASES = {case.name: case for case in _cases()}


def spec_of(case: Case) -> RunSpec:
    """The case as a run."""
    recipe = replace(load_recipe("demo").at(RANKS * BATCH), precision="fp32", clip_norm=None, accumulation=1, seed=1)
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


class Spiked(nn.Module):
    """LeNet, and two numbers of which `factor` makes the second one's gradient infinite: on one rank, if sharded."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = models.build("lenet", 10, 16)
        self.spike = nn.Parameter(torch.zeros(2))
        self.factor = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = torch.eye(10)[0]
        return self.inner(x).float() + (self.spike * torch.tensor([0.0, self.factor])).sum() * first


class Slow(torch.autograd.Function):
    """What it is given; its backward pass takes SLOW_S."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        time.sleep(SLOW_S)
        return gradients[0]


class Token(nn.Module):
    """Like CaiT, with a class token: the first parameter by name is used last, and so it is the first with a gradient.

    The last gradient, that of `first`, comes SLOW_S later.
    """

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(16))
        self.first, self.last = nn.Linear(768, 16), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(Slow.apply(self.first(x.flatten(1))) + self.token)
        return scores


class Loud(nn.Module):
    """LeNet, whose scores are multiplied, and so are its gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = models.build("lenet", 10, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * 12


def model_of(name: str) -> nn.Module:
    """The untrained model for pictures of 16x16, the same on every rank."""
    torch.manual_seed(1)
    if name == "vit":
        torchvision_operators.mend()
        from timm.models.vision_transformer import VisionTransformer

        return VisionTransformer(
            img_size=16, patch_size=8, embed_dim=16, depth=6, num_heads=2, num_classes=10, init_values=None
        )
    if name == "spike":
        return Spiked()
    if name == "token":
        return Token()
    if name == "loud":
        return Loud()
    if name == "norm":
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14**2, 10))
    if name == "linear":  # no parameter without gradients, which one bit cannot say
        return nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
    if name == "wide":  # DeepSpeed shards a parameter from 100 000 numbers on
        return nn.Sequential(nn.Flatten(), nn.Linear(768, 256), nn.ReLU(), nn.Linear(256, 512), nn.Linear(512, 10))
    return models.build("lenet", 10, 16)


def optimizer_of(spec: RunSpec, model: nn.Module) -> torch.optim.Optimizer:
    """The recipe's, with norm and bias in a group of their own."""
    return optimizers.build(spec.recipe, model)


def batch_of(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A rank's pictures of a step, and labels that can be learned: where a picture is brightest."""
    draw = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(BATCH, 3, 16, 16, generator=draw)
    return x, x.mean((1, 3)).argmax(1) % 10


def autocast(model: nn.Module, precision: str) -> None:
    """As the loop does it: within the model's forward, whatever a framework wraps around it."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    if dtype is None:
        return
    whole = model.forward

    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype):
            return whole(x).float()

    model.forward = forward  # type: ignore[method-assign]


def watch_synchronize() -> Counter[str]:
    """Counts from here on what DeepSpeed asks of its accelerator: to wait for all that it does."""
    from deepspeed.accelerator import get_accelerator

    accelerator, asked = get_accelerator(), Counter[str]()
    synchronize = accelerator.synchronize

    def counted(*args: Any) -> None:
        asked["synchronize"] += 1
        synchronize(*args)

    accelerator.synchronize = counted
    return asked


def slowed(does: Callable[..., Any]) -> Callable[..., Any]:
    def slowly(*args: Any, **kwargs: Any) -> Any:
        time.sleep(SLOW_S)
        return does(*args, **kwargs)

    return slowly


@contextmanager
def planted(case: Case, engine: Any, rank: int) -> Iterator[None]:
    """Within, what the case names is slow."""
    if case.slow == "gather":
        from deepspeed.comm.comm import cdb

        owner, name = cdb, "all_gather_into_tensor"
    elif case.slow == "optimizer" and rank == 0:
        owner, name = engine.optimizer, "step"
    else:
        yield
        return
    quick = getattr(owner, name)
    setattr(owner, name, slowed(quick))
    yield
    setattr(owner, name, quick)


def drive(case: Case, rank: int, folder: Path, resumed: bool) -> dict[str, Any]:
    """Take the case's steps; what they gave."""
    spec = spec_of(case)
    model = model_of(case.model)
    autocast(model, spec.recipe.precision)
    clock = Clock("cpu")
    framework = registry.member("frameworks", case.adapter)
    engine = framework.Engine(model, lambda m: optimizer_of(spec, m), spec, clock)
    engine.model.train()
    saved = folder / f"{case.name}-saved-{rank}.pt"
    if resumed:
        engine.load(torch.load(saved, weights_only=True))
    parts = spec.recipe.accumulation
    losses, waits, updates, kept, calls = [], [], [], [], []
    host_waits = HostWaits()
    synchronized = watch_synchronize() if case.adapter == "deepspeed" else Counter[str]()
    counts = [0] * len(getattr(model, "blocks", []))
    for i in range(len(counts)):
        model.blocks[i].norm1.register_forward_hook(lambda *_, i=i: counts.__setitem__(i, counts[i] + 1))
    for step in range(case.save_at if resumed else 0, case.steps):
        if step == case.save_at and not resumed:
            torch.save(engine.state(), saved)
        x, y = batch_of(rank, step)
        if isinstance(model, Spiked):
            model.factor = 1e37 if step == OVERFLOW_AT else 0.0
        if step == 2:  # validation between two steps disturbs nothing, nor does asking for weights
            engine.model.eval()
            with torch.no_grad():
                engine(x)
            whole(engine.model)
            engine.model.train()
        for group in engine.optimizer.param_groups:
            group["lr"] = spec.recipe.base_lr * (1 - step / 100)
        total = []
        before = Counter(synchronized)
        # A step like any other: what is prepared in the first one is there.
        counting = host_waits if step == case.steps - 1 and not resumed else nullcontext()
        for part, (a, b) in enumerate(zip(x.chunk(parts), y.chunk(parts), strict=True)):
            counts[:] = [0] * len(counts)
            with counting:
                loss = F.cross_entropy(engine(a), b, reduction="sum") / BATCH
            calls.append(list(counts))
            if spec.recipe.precision == "fp16" and case.model != "spike" and (step, rank) == (OVERFLOW_AT, 1):
                loss = loss * OVERFLOW
            total.append(float(loss.detach()))
            with counting:
                engine.backward(loss, part == parts - 1)
            if getattr(engine, "dropping", None):
                kept.append(list(engine.dropping.kept))
        with counting, planted(case, engine, rank):
            began = clock.mark()
            engine.step()
            updates.append(clock.seconds([began, clock.mark()]))
        losses.append(sum(total))
        waits.append(engine.waits and [clock.seconds(list(pair)) for pair in engine.waits])
    host_waits.count.update(synchronized - before)  # of the last step
    weights = {name: value.detach().clone() for name, value in whole(engine.model).items()}
    again = [whole(engine.model) for _ in range(GATHERED)]
    return {
        "gathered_alike": all(torch.equal(other[name], weights[name]) for other in again for name in weights),
        "losses": losses,
        "waits": waits,
        "updates": updates,
        "host_waits": dict(host_waits.count),
        "kept": kept,
        "block_calls": calls,
        "skipped": engine.skipped_steps,
        "bytes": engine.state_bytes(),
        "weights": weights,
    }


def main() -> None:
    folder, phase, *wanted = Path(sys.argv[1]), *sys.argv[2:]
    faulthandler.enable()
    torch.set_num_threads(1)
    (folder / phase).mkdir(exist_ok=True)
    os.environ["DDLBENCH_FOLDER"] = str(folder / phase)
    rank = place.number()
    framework = registry.member("frameworks", CASES[wanted[0]].adapter)
    framework.start("cpu")
    for name in wanted:
        result = drive(CASES[name], rank, folder, phase == "resumed")
        torch.save(result, folder / f"{name}-{phase}-{rank}.pt")
    framework.close()


if __name__ == "__main__":
    main()
