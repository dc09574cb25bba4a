"""PyTorch DistributedDataParallel: gradients are averaged in buckets while the backward pass
runs.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ddlbench.patches import backward_end
from ddlbench.train.frameworks import _common
from ddlbench.train.frameworks._common import flag, number, one_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ddlbench.core.spec import RunSpec
    from ddlbench.train.frameworks import Clock, MakeOptimizer, Moment, Options

PACKAGE = "torch"
DISTRIBUTION = "torch"
INSTALL = "make install"
NOT_MEASURED: dict[str, str] = {}
SPLITS = "the batch"
COMMUNICATES = (
    "all-reduce of buckets of gradients during the backward pass; NCCL on GPUs, Gloo on CPUs"
)
POWER = (
    "iter",
    "error_dict",
    "p_memory_dict",
    "q_memory_dict",
)  # what PowerSGD keeps, the last three by bucket
OPTIONS: Options = _common.OPTIONS | {
    "bucket_mb": number(
        "MiB of gradients that are reduced together, as one bucket.", 25, exclusiveMinimum=0
    ),
    "gradient_as_bucket_view": flag(
        "Keep gradients inside the buckets, not beside them. This saves one copy of all gradients."
    ),
    "compression": one_of(
        "Send gradients as they are, as 16-bit floats, or as products of thin matrices (PowerSGD, "
        "arXiv:1905.13727), whose error is added to the next step's gradients.",
        "none",
        "fp16",
        "powersgd",
    ),
    "powersgd_rank": number(
        "With compression powersgd: columns of the thin matrices.", 1, "integer", minimum=1
    ),
    "powersgd_start": number(
        "With compression powersgd: the step from which on it compresses.",
        1000,
        "integer",
        minimum=2,
    ),
    "static_graph": flag("Tell DDP that every step uses the same parameters in the same order."),
}

lacks, close = _common.lacks, _common.close
average, gather, sync_batch_norm = _common.average, _common.gather, _common.sync_batch_norm
environment = _common.environment


def refuses(spec: RunSpec) -> str | None:
    """Return why this run cannot be trained, or None.

    On these combinations torch 2.13 fails within its reducer.
    """
    if spec.option("static_graph") and spec.recipe.accumulation > 1:
        return (
            "option static_graph: reduces every micro-batch, but the recipe has accumulation;"
            " allowed: false"
        )
    if spec.option("compression") == "powersgd" and (
        spec.recipe.precision == "fp16" or spec.option("static_graph")
    ):
        why = (
            "keeps what it did not send: precision fp16 would spoil it by an overflow, static_graph"
            " by other buckets"
        )
        return f"option compression: powersgd {why}; allowed here: none, fp16"
    return _common.refuses(spec)


def start(device: str) -> None:
    """Join the process group: NCCL between GPUs, Gloo between CPU ranks. RANK, WORLD_SIZE, MASTER_*
    are set.
    """
    import torch.distributed as dist

    _common.set_timeout()
    dist.init_process_group("nccl" if device == "cuda" else "gloo")


def _compress(ddp: Any, spec: RunSpec) -> Any:
    """Let DDP send what the option says; what PowerSGD keeps, else None."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    if spec.option("compression") == "fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if spec.option("compression") != "powersgd":
        return None
    power = powerSGD_hook.PowerSGDState(
        None,
        spec.option("powersgd_rank"),
        spec.option("powersgd_start"),
        compression_stats_logging_frequency=10**9,
    )

    def hook(state: Any, bucket: Any) -> Any:
        """Reduce one bucket after the other.

        PowerSGD reduces again when its first sum is there, which on Gloo is in another thread:
        ranks would reduce two buckets in different orders.
        """
        reduced = powerSGD_hook.powerSGD_hook(state, bucket)
        if not bucket.buffer().is_cuda:
            reduced.wait()
        return reduced

    # torch compares the annotations with types, and these are text here.
    hook.__annotations__.clear()
    ddp.register_comm_hook(power, hook)
    return power


def without_broadcasts(ddp: type) -> dict[str, Any]:
    """Return the keyword that keeps DDP from broadcasting rank 0's buffers at every forward pass.

    The loop averages batch-norm statistics before validation, for every framework alike; DDP's
    broadcast would cost a collective a step that the others do not pay. Torch 2.11 knows
    `broadcast_buffers` only, which 2.13 deprecates.
    """
    known = inspect.signature(ddp).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    return {name: False}


class Engine(_common.Engine):
    """The model as DDP runs it. `waits`: DDP reduces while it computes; a step's wait is the time
    from the last gradient, whichever it is, to the end of the backward pass, where the stream has
    joined.
    """

    def __init__(
        self, model: nn.Module, make_optimizer: MakeOptimizer, spec: RunSpec, clock: Clock
    ) -> None:
        import torch
        from torch.nn.parallel import DistributedDataParallel

        self.ddp = DistributedDataParallel(
            model,
            device_ids=[torch.cuda.current_device()] if spec.device == "cuda" else None,
            **without_broadcasts(DistributedDataParallel),
            bucket_cap_mb=spec.option("bucket_mb"),
            gradient_as_bucket_view=spec.option("gradient_as_bucket_view"),
            static_graph=spec.option("static_graph"),
            # DDP deals its buckets anew after a process's first step, unless it looks for unused
            # parameters. PowerSGD keeps errors by bucket, which a run that goes on must find where
            # they were.
            find_unused_parameters=spec.option("compression") == "powersgd",
        )
        self.power: Any = _compress(self.ddp, spec)
        super().__init__(model, make_optimizer(model), spec, clock)
        self.accumulation = spec.recipe.accumulation
        self._forwards = 0
        self._computed: Moment = None

    def _begins(self, gradient: Tensor) -> None:
        """Queue a callback when the backward pass begins.

        It runs when all gradients are there, before the callback that DDP queues with its last
        bucket and in which it waits for its reductions.
        """
        backward_end.call_when_computed(self._computes_no_more)

    def _computes_no_more(self) -> None:
        self._computed = self.clock.mark()

    def __call__(self, images: Tensor) -> Tensor:
        import torch

        scores: Tensor
        if torch.is_grad_enabled():
            self._forwards = self._forwards % self.accumulation + 1
            if self._forwards < self.accumulation:
                # Before the forward pass, DDP must know that these gradients are not to be reduced
                # yet.
                with self.ddp.no_sync():
                    scores = self.ddp(images)
                return scores
        scores = self.ddp(images)
        return scores

    def reduced_backward(self, loss: Tensor, last: bool) -> None:
        if last != (self._forwards == self.accumulation):
            raise RuntimeError(
                f"micro-batch {self._forwards} of {self.accumulation} cannot be last={last}"
            )
        if last:
            loss.register_hook(self._begins)
        loss.backward()
        self.waits = [(self._computed, self.clock.mark())] if last else None

    def state(self) -> dict[str, Any]:
        """Return all that this rank changes by training; with PowerSGD also what it has not sent
        yet.
        """
        kept = {name: getattr(self.power, name) for name in POWER if self.power is not None}
        return {**super().state(), "power": kept}

    def load(self, state: dict[str, Any]) -> None:
        """Resume from `state`, which this rank of an equal run returned."""
        super().load(state)
        for name, value in state.get("power", {}).items():
            on_device = (
                {
                    bucket: tensor.to(next(self.model.parameters()).device)
                    for bucket, tensor in value.items()
                }
                if name != "iter"
                else value
            )
            setattr(self.power, name, on_device)
