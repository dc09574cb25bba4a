"""DeepSpeed, whose engine owns the backward pass and the update.

ZeRO shards what a rank holds. One-bit optimizers send less, layers can be dropped, and DeepSpeed
can write tables of operations and of messages. `_deepspeed_options.py` has the options, which of
them go together, and the configuration that they make. What is changed within DeepSpeed is in files
`deepspeed_*.py` of `patches/`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlbench.core import registry
from ddlbench.core.files import write_json
from ddlbench.core.record import COMMS, FLOPS
from ddlbench.core.spec import RunSpec
from ddlbench.patches import (
    ReleaseError,
    deepspeed_devices,
    deepspeed_loss_scale,
    deepspeed_on_cpu,
    deepspeed_one_bit,
    deepspeed_watchers,
    deepspeed_zero,
    timm_layer_dropping,
)
from ddlbench.patches.timm_layer_dropping import LayerDropping
from ddlbench.train.frameworks import _common, _deepspeed_flops, _deepspeed_options
from ddlbench.train.frameworks._common import bytes_of, tensors_in

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ddlbench.settings.machine import Machine
    from ddlbench.train.frameworks import Clock, MakeOptimizer

PACKAGE = "deepspeed"
DISTRIBUTION = "deepspeed"
INSTALL = "make install"
NOT_MEASURED = {
    "communication_s": "with zero_stage 3 weights and gradients are sent during both passes"
}
SPLITS = (
    "the batch; ZeRO 1 the optimizer's state too, ZeRO 2 the gradients too, ZeRO 3 the"
    " parameters too"
)
COMMUNICATES = (
    "ZeRO 0: all-reduce of gradients after the backward pass; ZeRO 1 and 2: reduction to the ranks"
    " that own them, after it (1) or during it (2, and 1 with overlap_comm), and all-gather of"
    " parameters after the update; ZeRO 3: all-gather of parameters during both passes; one-bit"
    " optimizers: compressed momentum; NCCL on GPUs, Gloo on CPUs"
)
PROFILED_STEP = 1  # from 0: the first may compile something
COUNTERS = ("global_steps", "global_samples", "micro_steps", "skipped_steps")  # of the engine
OPTIONS, refuses = _deepspeed_options.OPTIONS, _deepspeed_options.refuses
average, gather = _common.average, _common.gather
sync_batch_norm = _common.sync_batch_norm


def environment(spec: RunSpec, machine: Machine) -> dict[str, str]:
    """Return the variables for DeepSpeed.

    They name the accelerator, which DeepSpeed would otherwise guess from installed packages. With
    offload from a GPU, the optimizer works on the host. It uses all cores that loaders leave free,
    unless the machine's file sets the number.
    """
    told = {"DS_ACCELERATOR": machine.device, **_common.environment(spec, machine)}
    given = {name for name, _ in machine.environment}
    trains = isinstance(spec, RunSpec)  # inference jobs need these variables too
    if (
        machine.device == "cuda"
        and trains
        and spec.option("offload") != "none"
        and "OMP_NUM_THREADS" not in given
    ):
        told["OMP_NUM_THREADS"] = str(max(1, machine.cores_per_worker - machine.loader_threads))
    return told


def lacks(device: str, options: Mapping[str, Any]) -> str | None:
    """Names another release than those that were tried, or that the options need; NCCL, or CuPy
    where a one-bit optimizer needs it, if it is missing; None if nothing is.
    """
    try:
        deepspeed_zero.guard()
        if options["compression"] != "none":
            deepspeed_one_bit.guard()
        if options["progressive_layer_dropping"]:
            timm_layer_dropping.guard()
    except ReleaseError as error:
        return str(error)
    if device == "cuda" and options["compression"] != "none" and not registry.importable("cupy"):
        need = "DeepSpeed packs bits on GPUs with CuPy, which is not installed"
        return f"option compression: {options['compression']}: {need}: pip install cupy-cuda13x"
    return _common.lacks(device, options)


def start(device: str) -> None:
    """Join the process group: NCCL between GPUs, Gloo between CPU ranks."""
    import deepspeed

    if device == "cuda":
        import torch

        # DeepSpeed takes the GPU of this number, which is not the rank's where each rank sees one
        # GPU only.
        os.environ["LOCAL_RANK"] = str(torch.cuda.current_device())
        deepspeed_devices.number_visible()
    if device == "cpu":
        deepspeed_on_cpu.enable()
    timeout = _common.set_timeout()
    deepspeed.init_distributed(
        "nccl" if device == "cuda" else "gloo", timeout=timeout, verbose=False
    )


class Engine(_common.Engine):
    """The model as DeepSpeed runs it, which owns the backward pass and the update.

    `waits`: the reduction after the backward pass (zero_stage 0, 1), that of each full bucket and
    of the rest (2, and 1 with overlap_comm, where a bucket waits for the one before); the messages
    of the update, which gather the parameters (1, 2); the compressed messages of a one-bit
    optimizer, compressing included; None with zero_stage 3.
    """

    def __init__(
        self, model: nn.Module, make_optimizer: MakeOptimizer, spec: RunSpec, clock: Clock
    ) -> None:
        import deepspeed

        deepspeed_zero.guard()
        self.stage = spec.option("zero_stage")
        self.compressed = spec.option("compression") != "none"
        optimizer = make_optimizer(model)
        numbers = sum(p.numel() for p in model.parameters())
        config = _deepspeed_options.settings(spec, numbers)
        given = (
            {"model_parameters": optimizer.param_groups}
            if self.compressed
            else {"optimizer": optimizer}
        )
        self.engine, *_ = deepspeed.initialize(model=model, config=config, **given)
        super().__init__(
            model, self.engine.basic_optimizer, spec, clock
        )  # with ZeRO, DeepSpeed counts skipped steps
        self.numbers = numbers  # ZeRO 3 has left none in the parameters themselves
        self.zero: Any = self.engine.optimizer if self.stage else None
        self._part, self._last = 0, True
        self.profiles = spec.option("flops_profiler") and self.engine.global_rank == 0
        self._waiting = False
        overlaps = spec.option("overlap_comm")
        deepspeed_watchers.watch_reductions(
            self.engine, self.zero, self.stage, overlaps, self._timed, lambda: self._last
        )
        if self.compressed:
            deepspeed_one_bit.take_first_step(self.optimizer)
            self.engine.enable_backward_allreduce = True
            backend = self.engine.basic_optimizer.comm_backend_handle
            backend.compressed_allreduce = self._timed(backend.compressed_allreduce)
        if self.scaler.is_enabled():
            deepspeed_loss_scale.give(self.engine, self.scaler, self.zero)
        self.dropping: Any = None
        if spec.option("progressive_layer_dropping"):
            self.dropping = LayerDropping(model, spec.seed)
            model.register_forward_pre_hook(self._drop_layers, with_kwargs=True)

    def _timed(self, reduce: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `reduce` so that its time is recorded as a wait; within another such wait it is part
        of that one.
        """

        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._waiting:
                return reduce(*args, **kwargs)
            self._waiting, before = True, self.clock.mark()
            try:
                result = reduce(*args, **kwargs)
            finally:
                self._waiting = False
            self.waits = [*(self.waits or []), (before, self.clock.mark())]
            return result

        return timed

    @property
    def skipped_steps(self) -> int:
        return super().skipped_steps + int(self.engine.skipped_steps)

    def _drop_layers(self, _model: Any, args: Any, kwargs: Any) -> Any:
        """Take theta, which DeepSpeed passes to the model as an argument: models of timm do not
        know it.
        """
        kwargs.pop("progressive_layer_drop", None)
        theta = kwargs.pop("pld_theta", None)
        if theta is None:
            self.dropping.keep_all()
        else:
            self.dropping.draw(float(theta), self.engine.global_steps, self._part)
        return args, kwargs

    def __call__(self, images: Tensor) -> Tensor:
        if self.dropping:
            # After a step DeepSpeed sets the theta of the step that is over; this is the one of the
            # step that begins.
            self.engine.progressive_layer_drop.update_state(self.engine.global_steps)
        scores: Tensor
        first_pass = (self.engine.global_steps, self._part) == (PROFILED_STEP, 0)
        if self.profiles and self.model.training and first_pass:
            scores, counts = _deepspeed_flops.profiled(self.model, self.engine, images)
            write_json(Path(os.environ["DDLBENCH_FOLDER"]) / FLOPS, counts)
            return scores
        scores = self.engine(images)
        return scores

    def backward(self, loss: Tensor, last: bool) -> None:
        if self._part == 0:
            self.waits = None
        self._part, self._last = self._part + 1, last
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(loss, scale_wrt_gas=False)

    def step(self) -> None:
        with deepspeed_watchers.watched_update(self.stage, self._timed):
            self.engine.step()
        self._part = 0

    def state(self) -> dict[str, Any]:
        """Return all that training changes on this rank.

        Tensors are not copied: save it before the next step.
        """
        model = self.model.named_buffers() if self.stage == 3 else self.model.state_dict()
        state: dict[str, Any] = {
            "counters": {name: getattr(self.engine, name) for name in COUNTERS},
            "skipped": self.skipped.steps,
            "scaler": self.scaler.state_dict(),
            "model": dict(model),
        }
        if self.compressed:
            state["optimizer"] = deepspeed_one_bit.state(
                self.optimizer, self.engine.enable_backward_allreduce
            )
        else:
            masters = deepspeed_zero.masters(self.zero, self.stage)
            state["masters"] = [master.detach() for master in masters]
            state["optimizer"] = deepspeed_zero.optimizer_state(self.optimizer, masters)
        if self.stage and self.scaler.is_enabled():
            state["loss_scaler"] = deepspeed_loss_scale.state(self.zero)
        return state

    def load(self, state: dict[str, Any]) -> None:
        """Resume from `state`, which this rank of an equal run returned."""
        import torch

        with torch.no_grad():
            for name, value in state["counters"].items():
                setattr(self.engine, name, value)
            self.skipped.before = state["skipped"]
            self.scaler.load_state_dict(state["scaler"])
            if self.stage == 3:
                for name, buffer in self.model.named_buffers():
                    buffer.copy_(state["model"][name])
            else:
                self.model.load_state_dict(state["model"])
            if self.compressed:
                self.engine.enable_backward_allreduce = deepspeed_one_bit.load(
                    self.optimizer, state["optimizer"]
                )
                return
            masters = deepspeed_zero.masters(self.zero, self.stage)
            for mine, saved in zip(masters, state["masters"], strict=True):
                mine.copy_(saved)
            deepspeed_zero.load_optimizer_state(self.optimizer, masters, state["optimizer"])
            if self.stage == 3:
                deepspeed_zero.spread_masters(self.zero)
            deepspeed_loss_scale.load(self.zero, state.get("loss_scaler", {}))

    def state_bytes(self) -> dict[str, int]:
        """Return the number of bytes that this rank holds.

        With ZeRO 3, a rank's parameters are the shards, and the small ones that are complete on
        every rank.
        """
        parameters: list[Any] = [*self.model.parameters(), *self.model.buffers()]
        if self.stage == 3:
            parameters += [p.ds_tensor for p in parameters if hasattr(p, "ds_tensor")]
        errors = [getattr(self.optimizer, name, []) for name in deepspeed_one_bit.ERRORS]
        kept = [dict(self.optimizer.state), deepspeed_zero.masters(self.zero, self.stage), errors]
        sizes = {
            "parameters_bytes": bytes_of(parameters),
            "optimizer_bytes": bytes_of(tensors_in(kept)),
        }
        return super().state_bytes() | sizes


def close() -> None:
    """Write the table of messages, if they were logged; leave the process group."""
    from deepspeed.comm import comm

    if comm.comms_logger.enabled and comm.get_rank() == 0:
        table = Path(os.environ["DDLBENCH_FOLDER"]) / COMMS
        with table.open("w", encoding="utf-8") as file, redirect_stdout(file):
            comm.comms_logger.log_all(print_log=True)
    _common.close()
