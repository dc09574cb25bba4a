"""Everything that a rank has before its first step: device, loaders, framework, model, engine, clock, log.

`set_up` makes it, in an order that matters. `train.py` is the loop that uses it.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ddlbench.core import beats, notes, registry
from ddlbench.core.files import write_json
from ddlbench.core.record import FLOPS_COUNTED, RankLog
from ddlbench.core.spec import RunSpec, steps_per_epoch
from ddlbench.train import checkpoint, models, optimizers, place, precision, profiler, sync_norm
from ddlbench.train.assignment import Assignment
from ddlbench.train.clock import Clock
from ddlbench.train.frameworks import Engine, Framework
from ddlbench.train.guard import Guard
from ddlbench.train.loaders import Batch, Loader
from ddlbench.train.measure import Meter


@dataclass(frozen=True, slots=True)
class Start:
    """Where training begins in this process: at the run's first step, or at a checkpoint's."""

    step: int = 0  # counted over the whole run
    elapsed_s: float = 0.0
    written: dict[str, int] | None = None  # `RankLog.bytes_written` then
    losses: list[float] = field(default_factory=list)  # of the epoch's steps before
    used: list[dict[str, Any]] = field(default_factory=list)  # `Meter.read` of each process that trained before


@dataclass(frozen=True, slots=True)
class Setup:
    """What a rank has."""

    assignment: Assignment
    spec: RunSpec  # the assignment's
    place: place.Rank
    device: torch.device
    images: dict[str, int]  # by split
    steps: int  # per epoch
    start: Start
    log: RankLog
    framework: Framework
    loaders: dict[str, Loader]
    ahead: dict[str, Iterator[Batch]]  # by split, of the first epoch: the loaders were asked for them already
    model: torch.nn.Module
    engine: Engine
    share: sync_norm.Share  # what this rank's batch weighs in synchronised batch norm
    clock: Clock
    guard: Guard
    meter: Meter
    profiled_step: Callable[[], None]  # to call after every step

    @property
    def rank(self) -> int:
        return self.place.rank

    def sum_over_ranks(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum of a tensor over ranks, the same on all."""
        return self.framework.average(tensor) * self.spec.workers

    def meet(self) -> None:
        """Wait for all ranks."""
        # On a GPU a collective returns when it is enqueued: only who reads its value waits.
        self.framework.average(torch.zeros(1, device=self.device)).tolist()

    def of_first(self, numbers: torch.Tensor) -> torch.Tensor:
        """Rank 0's whole numbers below 65 536, on all ranks: their sum with the others' zeros."""
        given = numbers if self.rank == 0 else torch.zeros_like(numbers)
        return (self.framework.average(given.to(self.device)).cpu().double() * self.spec.workers).round()

    def batches(self, split: str, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch that are still to do."""
        ahead = self.ahead.pop(split, None)
        return iter(self.loaders[split].epoch(epoch) if ahead is None else ahead)


def set_up(assignment: Assignment) -> Setup:
    """Make a rank ready for training, from the newest checkpoint in the run's folder if there is one.

    Raises WorldError if the launcher started another number of ranks than promised, or shows this one no GPU;
    RuntimeError if the framework as it is installed cannot train this run.
    """
    spec, folder = assignment.spec, assignment.folder
    who = place.here(spec.workers)
    notes.introduce(folder, who.rank, who.local_rank)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if spec.device == "cuda":
        place.take_device(who.local_rank)
    device = torch.device(spec.device)
    start, state = _start(folder, who.rank)
    log = RankLog(folder, who.rank, start.written)
    images, classes = assignment.sizes()
    steps = steps_per_epoch(images["train"], spec.global_batch)
    if state is None:
        log.event("cache_clear", True)  # a run is processes of its own; the file cache is as it was left
        log.start("init_start")
        log.settings(spec, assignment.facts, images["train"], images["val"])
    asked = time.monotonic()
    # Loaders first: they fork worker processes, which must not happen once a framework runs threads.
    member, kept = registry.member("loaders", spec.loader), state["loaders"] if state else {}
    loaders: dict[str, Loader] = {
        split: member.Loader(assignment.data, split, spec, who.rank, images[split], classes, kept.get(split))
        for split in ("train", "val")
    }
    epoch, done = divmod(start.step, steps)
    ahead = {"train": loaders["train"].epoch(epoch, done), "val": loaders["val"].epoch(epoch)}
    beats.keep_beating(folder, who.rank, who.local_rank, spec.nodes, assignment.silent_s)
    framework: Framework = registry.member("frameworks", spec.adapter)
    if wrong := framework.lacks(spec.device, spec.all_options()):
        raise RuntimeError(wrong)
    framework.start(spec.device)
    guard = Guard(framework.average, device, assignment.checkpoint_minutes, start.step)
    precision.set_precision(spec)
    torch.manual_seed(spec.seed)  # every rank makes the same model
    model = models.build(spec.model, classes, spec.recipe.image_size, spec.recipe.zero_init_last)
    if who.rank == 0 and state is None:
        log.event("ddlbench_flops_per_image", models.flops_per_image(model, spec.recipe.image_size))
        log.event("ddlbench_initial_weights_sha256", weights_sha256(model))
        if spec.all_options().get("flops_profiler"):
            write_json(folder / FLOPS_COUNTED, models.forward_flops(model, spec.recipe.image_size))
    model.to(device)
    clock, share = Clock(spec.device, start.elapsed_s), sync_norm.Share()
    if spec.recipe.sync_batch_norm:
        share = sync_norm.convert(model, lambda t: framework.average(t) * spec.workers, clock)
    precision.prepare(model, spec)
    torch.manual_seed(spec.seed * 100_003 + who.rank)  # from here on, ranks draw different numbers
    engine = framework.Engine(model, partial(optimizers.build, spec.recipe), spec, clock)
    if state is None:
        log.stop("init_stop")
    else:
        engine.load(state["engine"])
        checkpoint.set_random_state(state["random"])
    setup = Setup(
        assignment=assignment,
        spec=spec,
        place=who,
        device=device,
        images=images,
        steps=steps,
        start=start,
        log=log,
        framework=framework,
        loaders=loaders,
        ahead=ahead,
        model=model,
        engine=engine,
        share=share,
        clock=clock,
        guard=guard,
        meter=Meter(spec.device, who.local_rank),
        profiled_step=profiler.start(spec, who.rank, folder, steps, start.step),
    )
    setup.meet()
    if state is None:
        log.event("ddlbench_clock_resolution_s", clock.resolution_s)
        log.event("ddlbench_data_before_clock_s", time.monotonic() - asked)
        log.start("run_start")
    else:
        log.event("ddlbench_resumed", {"step": start.step, "elapsed_s": start.elapsed_s})
    clock.start()
    setup.meter.start()
    return setup


def _start(folder: Path, rank: int) -> tuple[Start, dict[str, Any] | None]:
    """Where training begins, and this rank's part of the checkpoint; None at the run's first step."""
    newest = checkpoint.latest(folder)
    if newest is None:
        return Start(), None
    at, state = checkpoint.summary(newest), checkpoint.load(newest, rank)
    return Start(at["step"], at["elapsed_s"], at["written"], state["losses"], state["used"]), state


def weights_sha256(model: torch.nn.Module) -> str:
    """SHA-256 over names and bytes of a model's state dict: runs that begin alike have the same."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
