"""DeepSpeed, whose engine owns the backward pass and the update.

ZeRO shards what a rank holds. One-bit optimizers send less (`_onebit.py`), layers can be dropped
(`_layer_dropping.py`), and DeepSpeed can write tables of operations and of messages. `_deepspeed_options.py` has the
options, which of them go together, and the configuration that they make.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlbench.core import registry
from ddlbench.core.record import COMMS
from ddlbench.train.frameworks import _common, _deepspeed_options, _onebit
from ddlbench.train.frameworks._common import Most, Skipped, bytes_of, tensors_in

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ddlbench.core.spec import RunSpec
    from ddlbench.settings.machine import Machine
    from ddlbench.train.frameworks import Clock, MakeOptimizer, Moment

PACKAGE = "deepspeed"
DISTRIBUTION = "deepspeed"
INSTALL = "make install"
NOT_MEASURED = {"communication_s": "with zero_stage 3 weights and gradients are sent during both passes"}
SPLITS = "the batch; ZeRO 1 the optimizer's state too, ZeRO 2 the gradients too, ZeRO 3 the parameters too"
COMMUNICATES = (
    "ZeRO 0: all-reduce of gradients after the backward pass; ZeRO 1 and 2: reduction to the ranks that own them, "
    "after it (1) or during it (2), and all-gather of parameters after the update; ZeRO 3: all-gather of parameters "
    "during both passes; one-bit optimizers: compressed momentum; NCCL on GPUs, Gloo on CPUs"
)
OPTIONS, refuses = _deepspeed_options.OPTIONS, _deepspeed_options.refuses
local_launcher, average = _common.torchrun, _common.average


def saved_beside(spec: RunSpec) -> float:
    """In copies of the parameters. ZeRO 1 and 2 save them a second time, as shards; ZeRO 3 has nothing but shards.

    With one-bit optimizers every rank saves two kinds of errors: those of its own messages, and those of the part that
    it adds up for all. 0/1 Adam also saves what it gathers.
    """
    if spec.option("compression") != "none":
        return spec.workers + (2.0 if spec.option("compression") == "0/1-adam" else 1.0)
    return float(spec.option("zero_stage") in (1, 2))


def environment(spec: RunSpec, machine: Machine) -> dict[str, str]:
    """Tells DeepSpeed the accelerator, which it would otherwise guess from installed packages."""
    return {"DS_ACCELERATOR": machine.device, **_common.environment(spec, machine)}


def lacks(device: str, options: Mapping[str, Any]) -> str | None:
    """Names NCCL, or CuPy where a one-bit optimizer needs it, if it is missing; None if nothing is."""
    if device == "cuda" and options["compression"] != "none" and not registry.importable("cupy"):
        need = "DeepSpeed packs bits on GPUs with CuPy, which is not installed"
        return f"option compression: {options['compression']}: {need}: pip install cupy-cuda13x"
    return _common.lacks(device, options)


def start(device: str) -> None:
    """Join the process group: NCCL between GPUs, Gloo between CPU ranks."""
    import deepspeed
    import deepspeed.ops

    if device == "cuda":
        import torch

        # DeepSpeed takes the GPU of this number, which is not the rank's where each rank sees one GPU only.
        os.environ["LOCAL_RANK"] = str(torch.cuda.current_device())
    if device == "cpu":
        # DeepSpeed would compile a shared-memory collective for two minutes at its first start; Gloo reduces here.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        _onebit.enable_on_cpu()
    patience = _common.be_patient()
    deepspeed.init_distributed("nccl" if device == "cuda" else "gloo", timeout=patience, verbose=False)


class Engine:
    """The model as DeepSpeed runs it.

    `waits`: the reduction after the backward pass (zero_stage 0, 1), that of each full bucket and of the rest (2); the
    messages of the update, which gather the parameters (1, 2); the compressed messages of a one-bit optimizer,
    compressing included; None with zero_stage 3.
    """

    def __init__(self, model: nn.Module, make_optimizer: MakeOptimizer, spec: RunSpec, clock: Clock) -> None:
        import deepspeed

        self.model, self.spec, self.clock = model, spec, clock
        self.stage = spec.option("zero_stage")
        self.compressed = spec.option("compression") != "none"
        optimizer = make_optimizer(model)
        numbers = sum(p.numel() for p in model.parameters())
        config = _deepspeed_options.settings(spec, numbers)
        given = {"model_parameters": optimizer.param_groups} if self.compressed else {"optimizer": optimizer}
        self.engine, *_ = deepspeed.initialize(model=model, config=config, **given)
        self.optimizer = self.engine.basic_optimizer
        self.zero: Any = self.engine.optimizer if self.stage else None
        if self.compressed:
            _onebit.take_first_step(self.optimizer)
            self.engine.enable_backward_allreduce = True
        self.waits: list[tuple[Moment, Moment]] | None = None
        self.most = Most()
        self._watch_reductions()
        self._watch_messages()
        self._scale_losses()
        self.dropping: Any = None
        if spec.option("progressive_layer_dropping"):
            from ddlbench.train.frameworks._layer_dropping import LayerDropping

            self.dropping = LayerDropping(model, spec.seed)
            model.register_forward_pre_hook(self._drop_layers, with_kwargs=True)
        self._part, self._last = 0, True

    def _watch_reductions(self) -> None:
        if self.stage == 2:
            self.zero.reduce_ipg_grads = self._timed(self.zero.reduce_ipg_grads)
        elif self.stage < 2:
            reduce, timed = self.engine.allreduce_gradients, self._timed(self.engine.allreduce_gradients)
            # Called after each micro-batch, and reduces after the last.
            self.engine.allreduce_gradients = lambda *a, **k: (timed if self._last else reduce)(*a, **k)
        if self.compressed:
            backend = self.optimizer.comm_backend_handle
            backend.compressed_allreduce = self._timed(backend.compressed_allreduce)

    def _watch_messages(self) -> None:
        """Look at what gradients take when DeepSpeed is about to send some; each stage does that elsewhere."""
        if self.stage == 0:
            flatten = self.engine.flatten

            def flattened(tensors: list[Tensor]) -> Tensor:
                message: Tensor = flatten(tensors)
                self.most.look([*self._gradients(), message])
                return message

            self.engine.flatten = flattened
        for name in SENDERS[self.stage]:
            setattr(self.zero, name, self._watched(getattr(self.zero, name)))

    def _watched(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            # ZeRO 3 joins a bucket's gradients into one more message; stages 1 and 2 send the bucket itself.
            joined = bytes_in_buckets(self.zero) if self.stage == 3 else 0
            self.most.look(self._gradients(), joined)
            result = send(*args, **kwargs)
            self.most.look(self._gradients())
            return result

        return watched

    def _timed(self, reduce: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            before = self.clock.mark()
            result = reduce(*args, **kwargs)
            self.waits = [*(self.waits or []), (before, self.clock.mark())]
            return result

        return timed

    def _scale_losses(self) -> None:
        """Give DeepSpeed a loss scaler. It makes one only under its own autocast, and here the loop's is on."""
        import torch

        self.scaler = torch.amp.GradScaler(self.spec.device, enabled=self.spec.recipe.precision == "fp16")
        self.skipped = Skipped(self.scaler)  # with ZeRO, DeepSpeed counts itself
        if not self.scaler.is_enabled():
            return
        if self.stage == 0:
            self.engine.torch_autocast_z0_gradscaler = self.scaler
            return
        from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler

        # Like torch's scaler it begins with 2**16, which is halved after an overflow and doubled after 2000 steps
        # without one. But torch's looks at this rank's shard only; this one hears of an overflow on any rank.
        self.zero.loss_scaler = DynamicLossScaler(2.0**16, 2000, 2.0**-24, 1, False, raise_error_at_min_scale=False)
        self.zero.dynamic_loss_scale = self.zero.check_grad_overflow = True

    @property
    def skipped_steps(self) -> int:
        return self.skipped.steps + int(self.engine.skipped_steps)

    def _drop_layers(self, _model: Any, args: Any, kwargs: Any) -> Any:
        """Take theta, which DeepSpeed passes to the model as an argument: models of timm do not know it."""
        kwargs.pop("progressive_layer_drop", None)
        theta = kwargs.pop("pld_theta", None)
        if theta is None:
            self.dropping.keep_all()
        else:
            self.dropping.draw(float(theta), self.engine.global_steps, self._part)
        return args, kwargs

    def __call__(self, images: Tensor) -> Tensor:
        if self.dropping:
            # After a step DeepSpeed sets the theta of the step that is over; this is the one of the step that begins.
            self.engine.progressive_layer_drop.update_state(self.engine.global_steps)
        scores: Tensor = self.engine(images)
        return scores

    def backward(self, loss: Tensor, last: bool) -> None:
        if self._part == 0:
            self.waits = None
        self._part, self._last = self._part + 1, last
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(loss, scale_wrt_gas=False)

    def step(self) -> None:
        self.most.look(self._gradients())
        with self._watched_update():
            self.engine.step()
        self._part = 0
        self.most.over = True

    @contextmanager
    def _watched_update(self) -> Iterator[None]:
        """Within, messages of ZeRO 1 and 2 are waits: whether a gradient overflowed, the norm, the new parameters."""
        from deepspeed import comm

        messages = {name: getattr(comm, name) for name in MESSAGES if self.stage in (1, 2)}
        for name, send in messages.items():
            setattr(comm, name, self._timed(send))
        try:
            yield
        finally:
            for name, send in messages.items():
                setattr(comm, name, send)

    def _gradients(self) -> list[Tensor]:
        """All gradients of this step that exist now: the model's, the optimizer's, and those in DeepSpeed's buckets."""
        held = [p.grad for p in self.model.parameters() if p.grad is not None]
        if self.stage:
            held += tensors_in(self.zero.averaged_gradients)
            held += [p.grad for p in self._masters() if p.grad is not None]
            held += tensors_in([bucket.buffer for bucket in self.zero.ipg_buckets.values()])
            held += tensors_in([getattr(self.zero, "grad_partitions_flat_buffer", None)])
        return held

    def _masters(self) -> list[Any]:
        """The flat tensors that the optimizer updates: this rank's part of all parameters."""
        if self.stage in (1, 2):
            return list(self.zero.single_partition_of_fp32_groups)
        return list(self.zero.fp32_partitioned_groups_flat) if self.stage == 3 else []

    def state(self) -> dict[str, Any]:
        """All that this rank changes by training. Tensors are not copied: save it before the next step."""
        engine = self.engine
        counters = {name: getattr(engine, name) for name in COUNTERS}
        state: dict[str, Any] = {
            "counters": counters,
            "skipped": self.skipped.steps,
            "scaler": self.scaler.state_dict(),
        }
        if self.stage == 3:
            state["model"] = dict(self.model.named_buffers())
        else:
            state["model"] = dict(self.model.state_dict())
        if self.compressed:
            state["optimizer"] = _onebit.state(self.optimizer, engine.enable_backward_allreduce)
        else:
            masters = self._masters()
            state["masters"] = [master.detach() for master in masters]
            state["optimizer"] = _optimizer_state(self.optimizer, masters)
        if self.stage and self.scaler.is_enabled():
            state["loss_scaler"] = {name: getattr(self.zero.loss_scaler, name) for name in LOSS_SCALER}
        return state

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`, which this rank of an equal run returned."""
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
                self.engine.enable_backward_allreduce = _onebit.load(self.optimizer, state["optimizer"])
                return
            masters = self._masters()
            for mine, saved in zip(masters, state["masters"], strict=True):
                mine.copy_(saved)
            _load_optimizer_state(self.optimizer, masters, state["optimizer"])
            if self.stage == 3:
                self._spread_masters()
            for name, value in state.get("loss_scaler", {}).items():
                setattr(self.zero.loss_scaler, name, value)

    def _spread_masters(self) -> None:
        """Make ZeRO 3's shards of the parameters from the optimizer's; small parameters are whole on every rank."""
        zero = self.zero
        for group, master in enumerate(zero.fp32_partitioned_groups_flat):
            zero.fp16_partitioned_groups_flat[group].copy_(master)
            zero._unflatten_partitioned_parameters(group)
        if zero.persistent_parameters:
            zero.persistent_parameters[0].partition(zero.persistent_parameters)
            zero.persistent_parameters[0].all_gather(zero.persistent_parameters)

    def state_bytes(self) -> dict[str, int]:
        """Bytes that this rank holds, by what they are for (`frameworks.Engine`).

        With ZeRO 3, its parameters are the shards, and the small ones that are whole on every rank.
        """
        parameters: list[Any] = [*self.model.parameters(), *self.model.buffers()]
        if self.stage == 3:
            parameters += [p.ds_tensor for p in parameters if hasattr(p, "ds_tensor")]
        base = tensors_in(dict(self.optimizer.state))
        errors = [getattr(self.optimizer, name, []) for name in ("worker_errors", "server_errors")]
        return {
            "parameters_bytes": bytes_of(parameters),
            "gradients_bytes": self.most.bytes,
            "optimizer_bytes": bytes_of([*base, *self._masters(), *tensors_in(errors)]),
        }


def bytes_in_buckets(zero: Any) -> int:
    """Bytes of the gradients that wait to be sent."""
    waiting = (p.grad for bucket in zero.ipg_buckets.values() for p in bucket.params)
    return sum(gradient.numel() * gradient.element_size() for gradient in waiting)


# Methods of DeepSpeed's ZeRO optimizers that put gradients into buckets and send them.
SENDERS = {
    0: (),
    1: ("reduce_ready_partitions_and_remove_grads", "reduce_ipg_grads"),
    2: ("reduce_ready_partitions_and_remove_grads", "reduce_ipg_grads"),
    3: ("_DeepSpeedZeroOptimizer_Stage3__reduce_and_partition_ipg_grads",),
}
# Of deepspeed.comm, those that ZeRO 1 and 2 call when they update.
MESSAGES = ("all_reduce", "all_gather", "all_gather_into_tensor")
COUNTERS = ("global_steps", "global_samples", "micro_steps", "skipped_steps", "gas_boundary_ctr")
LOSS_SCALER = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")


def _optimizer_state(optimizer: Any, masters: list[Any]) -> dict[str, Any]:
    """What it keeps for each tensor that it updates, and for each group (timm's LAMB counts its steps there)."""
    return {
        "tensors": [dict(optimizer.state.get(p, {})) for p in _updated(optimizer, masters)],
        "groups": [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups],
    }


def _load_optimizer_state(optimizer: Any, masters: list[Any], saved: dict[str, Any]) -> None:
    for p, values in zip(_updated(optimizer, masters), saved["tensors"], strict=True):
        optimizer.state[p] = {
            # A step count stays where torch keeps it, on the host.
            name: value.to(p.device) if hasattr(value, "to") and value.shape == p.shape else value
            for name, value in values.items()
        }
    for group, values in zip(optimizer.param_groups, saved["groups"], strict=True):
        group.update(values)


def _updated(optimizer: Any, masters: list[Any]) -> list[Any]:
    return masters or [p for group in optimizer.param_groups for p in group["params"]]


def close() -> None:
    """Write the table of messages, if they were logged; leave the process group."""
    from deepspeed.comm import comm

    if comm.comms_logger.enabled and comm.get_rank() == 0:
        table = Path(os.environ["DDLBENCH_FOLDER"]) / COMMS
        with table.open("w", encoding="utf-8") as file, redirect_stdout(file):
            comm.comms_logger.log_all(print_log=True)
    _common.close()
