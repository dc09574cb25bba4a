"""Everything that a rank has before its first step: device, loaders, framework, model, engine,
clock, log.

`set_up` makes it in four stages, in an order that matters. `loop.py` is what uses it.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch

from ddlbench.core import heartbeats, notes, registry
from ddlbench.core.files import write_json
from ddlbench.core.rank_log import RankLog
from ddlbench.core.record import FLOPS_COUNTED
from ddlbench.core.spec import RunSpec, smallest_share, steps_per_epoch
from ddlbench.train import batch_norm, checkpoint, models, optimizers, place, precision, profiler
from ddlbench.train.assignment import Assignment, seen_here
from ddlbench.train.clock import Clock
from ddlbench.train.frameworks import Engine, Framework
from ddlbench.train.guard import Guard
from ddlbench.train.loaders import Batch, Loader, PictureSet
from ddlbench.train.measure import Meter


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """The point where training begins in this process: the run's first step, or a checkpoint's."""

    step: int = 0  # counted over the complete run
    elapsed_s: float = 0.0
    written: dict[str, int] | None = None  # `RankLog.bytes_written` then
    losses: list[float] = field(default_factory=list)  # of the epoch's steps before
    used: list[dict[str, Any]] = field(
        default_factory=list
    )  # `Meter.read` of each process that trained before


@dataclass(frozen=True)
class RankContext:
    """A rank that knows who it is and what it trains, before its loaders and its framework run."""

    assignment: Assignment
    spec: RunSpec  # the assignment's
    place: place.Rank
    device: torch.device
    images: dict[str, int]  # by split
    classes: int
    steps: int  # per epoch
    start: StartingPoint
    log: RankLog

    @property
    def rank(self) -> int:
        return self.place.rank


@dataclass(frozen=True)
class Setup(RankContext):
    """The parts that a rank has before its first step."""

    loaders: dict[str, Loader]
    ahead: dict[
        str, Iterator[Batch]
    ]  # by split, of the first epoch: already requested from the loaders
    framework: Framework
    guard: Guard
    model: torch.nn.Module
    engine: Engine
    clock: Clock
    meter: Meter
    profiled_step: Callable[[], None]  # to call after every step

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of each rank, [ranks, *shape], the same on all; from and to the CPU, so
        that it waits for all.
        """
        return _gathering(self.framework, self.device)(tensor)

    def meet(self) -> None:
        """Wait for all ranks."""
        self.gather(torch.zeros(1))

    def batches(self, split: str, epoch: int) -> Iterator[Batch]:
        """Return the batches of an epoch that are still to do."""
        ahead = self.ahead.pop(split, None)
        return iter(self.loaders[split].epoch(epoch) if ahead is None else ahead)


Saved: TypeAlias = (
    "dict[str, Any] | None"  # this rank's part of the checkpoint; None at the run's first step
)


def set_up(assignment: Assignment) -> Setup:
    """Make a rank ready for training, from the newest checkpoint in the run's folder if there is
    one.

    The order of the stages matters: loaders fork, which must not happen once a framework runs
    threads; a framework is joined before a model is made for it; and the clock starts when all
    ranks have all of it.

    Raises WorldError if the launcher started another number of ranks than promised, or shows this
    one no GPU; RuntimeError if the framework as it is installed cannot train this run.
    """
    context, saved = arrive(assignment)
    requested_s = time.monotonic()
    loaders, ahead = open_loaders(context, saved)
    framework, guard = join_others(context)
    model, engine, clock = wrap_model(context, framework, saved)
    setup = Setup(
        **vars(context),
        loaders=loaders,
        ahead=ahead,
        framework=framework,
        guard=guard,
        model=model,
        engine=engine,
        clock=clock,
        meter=Meter(context.spec.device, context.place.local_rank),
        profiled_step=profiler.start(
            context.spec, context.rank, assignment.folder, context.steps, context.start.step
        ),
    )
    begin(setup, requested_s)
    return setup


def arrive(assignment: Assignment) -> tuple[RankContext, Saved]:
    """Run the first stage: take a place among the ranks and a device, read the checkpoint, open the
    log.
    """
    spec, folder = assignment.spec, assignment.folder
    who = place.own_rank(spec.workers)
    notes.introduce(folder, who.rank, who.local_rank)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if spec.device == "cuda":
        place.take_device(who.local_rank)
    start, saved = _start(folder, who.rank)
    log = RankLog(folder, who.rank, start.written)
    images, classes = assignment.sizes()
    steps = steps_per_epoch(images["train"], spec.global_batch)
    if saved is None:
        log.event(
            "cache_clear", True
        )  # a run is processes of its own; the file cache is as it was left
        log.start("init_start")
        log.write_settings(
            spec, seen_here(assignment.facts, spec.device), images["train"], images["val"]
        )
    return (
        RankContext(
            assignment, spec, who, torch.device(spec.device), images, classes, steps, start, log
        ),
        saved,
    )


def open_loaders(
    context: RankContext, saved: Saved
) -> tuple[dict[str, Loader], dict[str, Iterator[Batch]]]:
    """Run the second stage: open the loaders and ask for their first epoch, while there are no
    threads; then start the heartbeat.
    """
    assignment, spec, rank = context.assignment, context.spec, context.rank
    member, kept = registry.member("loaders", spec.loader), saved["loaders"] if saved else {}
    loaders: dict[str, Loader] = {}
    for split in ("train", "val"):
        source = PictureSet(assignment.data, split, context.images[split], context.classes)
        loaders[split] = member.Loader(source, spec, rank, kept.get(split))
    epoch, done = divmod(context.start.step, context.steps)
    ahead = {"train": loaders["train"].epoch(epoch, done), "val": loaders["val"].epoch(epoch)}
    heartbeats.keep_beating(
        assignment.folder, rank, context.place.local_rank, spec.nodes, assignment.silent_s
    )
    return loaders, ahead


def join_others(context: RankContext) -> tuple[Framework, Guard]:
    """Run the third stage: join the other ranks.

    Raises RuntimeError if the framework lacks what the run needs.
    """
    spec, assignment = context.spec, context.assignment
    framework: Framework = registry.member("frameworks", spec.adapter)
    if wrong := framework.lacks(spec.device, spec.all_options()):
        raise RuntimeError(wrong)
    framework.start(spec.device)
    gather = _gathering(framework, context.device)
    return framework, Guard(gather, assignment.checkpoint_minutes, context.start.step)


def wrap_model(
    context: RankContext, framework: Framework, saved: Saved
) -> tuple[torch.nn.Module, Engine, Clock]:
    """Run the fourth stage: make the model, the same on all ranks, and hand it to the framework."""
    spec, recipe, log, folder = (
        context.spec,
        context.spec.recipe,
        context.log,
        context.assignment.folder,
    )
    precision.set_precision(spec)
    torch.manual_seed(spec.seed)  # every rank makes the same model
    model = models.build(
        spec.model, context.classes, recipe.image_size, recipe.zero_init_last, spec.model_sha256
    )
    if context.rank == 0 and saved is None:
        log.event("ddlbench_flops_per_image", models.flops_per_image(model, recipe.image_size))
        log.event("ddlbench_initial_weights_sha256", weights_sha256(model))
        if spec.all_options().get("flops_profiler"):
            write_json(folder / FLOPS_COUNTED, models.forward_flops(model, recipe.image_size))
    model.to(context.device)
    clock = Clock(spec.device, context.start.elapsed_s)
    if recipe.sync_batch_norm and spec.workers > 1:
        _all_have_images(context)
        batch_norm.synchronise(model, framework.sync_batch_norm())
    precision.prepare(model, spec)
    torch.manual_seed(
        spec.seed * 100_003 + context.rank
    )  # from here on, ranks draw different numbers
    engine = framework.Engine(model, partial(optimizers.build, recipe), spec, clock)
    if saved is None:
        log.stop("init_stop")
    else:
        engine.load(saved["engine"])
        checkpoint.set_random_state(saved["random"])
    return model, engine, clock


def _all_have_images(context: RankContext) -> None:
    """Raise RuntimeError if a rank computes a part of a step without images, which statistics would
    count.
    """
    spec, images = context.spec, context.images["train"]
    least, parts = smallest_share(images, spec.global_batch, spec.workers), spec.recipe.accumulation
    if least < parts:
        raise RuntimeError(
            f"recipe: sync_batch_norm: in an epoch's last step a rank has {least} of {images}"
            f" images for accumulation {parts}; take another global batch"
        )


def begin(setup: Setup, requested_s: float) -> None:
    """Start the clock when all ranks are ready, as the last step.

    `requested_s`: when batches were requested from the loaders [s].
    """
    setup.meet()
    log, start = setup.log, setup.start
    if start.step:
        log.event("ddlbench_resumed", {"step": start.step, "elapsed_s": start.elapsed_s})
    else:
        log.event("ddlbench_clock_resolution_s", setup.clock.resolution_s)
        log.event("ddlbench_data_before_clock_s", time.monotonic() - requested_s)
        log.start("run_start")
    setup.clock.start()
    setup.meter.start()


def _gathering(
    framework: Framework, device: torch.device
) -> Callable[[torch.Tensor], torch.Tensor]:
    # On a GPU a collective returns when it is enqueued: only who reads its value waits.
    return lambda tensor: framework.gather(tensor.to(device)).cpu()


def _start(folder: Path, rank: int) -> tuple[StartingPoint, Saved]:
    """Return where training begins, and this rank's part of the checkpoint."""
    newest = checkpoint.latest(folder)
    if newest is None:
        return StartingPoint(), None
    at, saved = checkpoint.summary(newest), checkpoint.load(newest, rank)
    return (
        StartingPoint(at["step"], at["elapsed_s"], at["written"], saved["losses"], saved["used"]),
        saved,
    )


def weights_sha256(model: torch.nn.Module) -> str:
    """Return the SHA-256 over names and bytes of a model's state dict: runs that begin alike have
    the same.
    """
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
