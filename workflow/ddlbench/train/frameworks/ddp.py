"""PyTorch DistributedDataParallel: gradients are averaged in buckets while the backward pass runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddlbench.mends import backward_end, ddp_buckets
from ddlbench.train.frameworks import _common

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ddlbench.core.spec import RunSpec
    from ddlbench.train.frameworks import Clock, MakeOptimizer, Moment, Options

PACKAGE = "torch"
DISTRIBUTION = "torch"
INSTALL = "make install"
NOT_MEASURED: dict[str, str] = {}
SPLITS = "the batch"
COMMUNICATES = "all-reduce of buckets of gradients during the backward pass; NCCL on GPUs, Gloo on CPUs"
OPTIONS: Options = _common.OPTIONS | {
    "bucket_mb": {
        "description": "MiB of gradients that are reduced together, as one bucket.",
        "type": "number",
        "exclusiveMinimum": 0,
        "default": 25,
    },
    "gradient_as_bucket_view": {
        "description": "Keep gradients inside the buckets, not beside them. This saves one copy of all gradients.",
        "type": "boolean",
        "default": False,
    },
    "static_graph": {
        "description": "Tell DDP that every step uses the same parameters in the same order.",
        "type": "boolean",
        "default": False,
    },
}

local_launcher, lacks, close = _common.torchrun, _common.lacks, _common.close
average, gather = _common.average, _common.gather
environment, saved_beside = _common.environment, _common.saved_beside


def refuses(spec: RunSpec) -> str | None:
    """Why this run cannot be trained, or None. On this combination torch 2.13 fails within its reducer."""
    if spec.option("static_graph") and spec.recipe.accumulation > 1:
        return "option static_graph: reduces every micro-batch, but the recipe has accumulation; allowed: false"
    return None


def start(device: str) -> None:
    """Join the process group: NCCL between GPUs, Gloo between CPU ranks. RANK, WORLD_SIZE, MASTER_* are set."""
    import torch.distributed as dist

    _common.be_patient()
    dist.init_process_group("nccl" if device == "cuda" else "gloo")


class Engine(_common.Engine):
    """The model as DDP runs it. `waits`: DDP reduces while it computes; what a step waits for is the time from the
    last gradient, whichever it is, to the end of the backward pass, where the stream has joined.
    """

    def __init__(self, model: nn.Module, make_optimizer: MakeOptimizer, spec: RunSpec, clock: Clock) -> None:
        import torch
        from torch.nn.parallel import DistributedDataParallel

        self.ddp = DistributedDataParallel(
            model,
            device_ids=[torch.cuda.current_device()] if spec.device == "cuda" else None,
            # The loop averages batch-norm statistics before validation, for every framework alike; DDP's own
            # broadcast of rank 0's would cost a collective a step that the others do not pay.
            forward_sync_buffers=False,
            bucket_cap_mb=spec.option("bucket_mb"),
            gradient_as_bucket_view=spec.option("gradient_as_bucket_view"),
            static_graph=spec.option("static_graph"),
        )
        self.copies = not spec.option("gradient_as_bucket_view")
        super().__init__(model, make_optimizer(model), spec, clock)
        self.accumulation = spec.recipe.accumulation
        self._forwards = 0
        self._computed: Moment = None

    def _begins(self, gradient: Tensor) -> None:
        """The backward pass begins. What is queued now runs when all gradients are there, before DDP, which queues its
        own with its last bucket, waits for its reductions."""
        backward_end.call_when_computed(self._computes_no_more)

    def _computes_no_more(self) -> None:
        self._computed = self.clock.mark()

    def __call__(self, images: Tensor) -> Tensor:
        import torch

        scores: Tensor
        if torch.is_grad_enabled():
            self._forwards = self._forwards % self.accumulation + 1
            if self._forwards < self.accumulation:
                # DDP is told before the forward pass that these gradients are not to be reduced yet.
                with self.ddp.no_sync():
                    scores = self.ddp(images)
                return scores
        scores = self.ddp(images)
        return scores

    def reduced_backward(self, loss: Tensor, last: bool) -> None:
        if last != (self._forwards == self.accumulation):
            raise RuntimeError(f"micro-batch {self._forwards} of {self.accumulation} cannot be last={last}")
        if last:
            loss.register_hook(self._begins)
        loss.backward()
        self.waits = [(self._computed, self.clock.mark())] if last else None

    def buffer_bytes(self) -> int:
        """The buckets, unless gradients lie in them."""
        return ddp_buckets.bucket_bytes(self.ddp) if self.copies else 0
