"""PyTorch FSDP2 (`fully_shard`): parameters, gradients and the optimizer's state are sharded over
ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ddlbench.train.frameworks import _common, ddp

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ddlbench.core.spec import RunSpec
    from ddlbench.train.frameworks import Clock, MakeOptimizer, Options

PACKAGE = "torch"
DISTRIBUTION = "torch"
INSTALL = "make install"
NOT_MEASURED = {
    "communication_s": "weights and gradients are sent during both passes, beside the computation"
}
SPLITS = "the batch, the parameters, their gradients and the optimizer's state"
COMMUNICATES = (
    "all-gather of a block's parameters during both passes, reduce-scatter of its gradients during"
    " the backward pass; NCCL on GPUs, Gloo on CPUs"
)
OPTIONS: Options = _common.OPTIONS | {
    "reshard_after_forward": _common.flag(
        "Free a block's parameters after its forward pass and gather them again for the backward"
        " pass. This takes less memory and more messages.",
        default=True,
    ),
}

lacks, close = _common.lacks, _common.close
average, gather, sync_batch_norm = _common.average, _common.gather, _common.sync_batch_norm
environment, start = ddp.environment, ddp.start


def refuses(spec: RunSpec) -> str | None:
    """Return why this run cannot be trained, or None."""
    if spec.option("channels_last"):
        return "option channels_last: fsdp shards contiguous parameters only; allowed: false"
    return _common.refuses(spec)


def blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that are gathered one at a time: the model's children, and of sequences (a
    stage of a ResNet, the blocks of a vision transformer) their members.
    """
    from torch import nn

    for child in model.children():
        inner = blocks(child) if isinstance(child, nn.Sequential | nn.ModuleList) else [child]
        yield from (block for block in inner if next(block.parameters(), None) is not None)


class Engine(_common.Engine):
    """The model sharded by block. `waits` is None: how long a step waits cannot be measured from
    outside.
    """

    stage = 3

    def __init__(
        self, model: nn.Module, make_optimizer: MakeOptimizer, spec: RunSpec, clock: Clock
    ) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        mesh = init_device_mesh(spec.device, (spec.workers,))
        for module in (*blocks(model), model):
            fully_shard(
                module, mesh=mesh, reshard_after_forward=spec.option("reshard_after_forward")
            )
        assert isinstance(model, FSDPModule)  # its class is now this one too
        self.sharded = model
        super().__init__(model, make_optimizer(model), spec, clock)

    def reduced_backward(self, loss: Tensor, last: bool) -> None:
        self.sharded.set_requires_gradient_sync(last)
        loss.backward()

    def state(self) -> dict[str, Any]:
        """Return all that this rank changes by training; of sharded tensors, its shards."""
        state: dict[str, Any] = _local(super().state())
        return state

    def load(self, state: dict[str, Any]) -> None:
        """Resume from `state`, which this rank of an equal run returned."""
        import torch

        with torch.no_grad():
            for name, mine in self.model.state_dict().items():
                _local(mine).copy_(state["model"][name])
        # Keyed by number in the saved state: in the order of the groups.
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        saved = state["optimizer"]["state"]
        optimizer = {
            k: {n: _like(parameters[k], v) for n, v in values.items()}
            for k, values in saved.items()
        }
        self.optimizer.load_state_dict({**state["optimizer"], "state": optimizer})
        self.scaler.load_state_dict(state["scaler"])
        self.skipped.before = state["skipped_steps"]


def _local(state: Any) -> Any:
    """Return the state with this rank's shard in place of each sharded tensor."""
    if isinstance(state, dict):
        return {key: _local(value) for key, value in state.items()}
    return state.to_local() if hasattr(state, "to_local") else state


def _like(parameter: Any, value: Any) -> Any:
    """Return a shard of the optimizer's state as a tensor sharded like its parameter; return what
    is no shard as it is.
    """
    from torch.distributed.tensor import DTensor

    if getattr(value, "shape", None) != parameter.to_local().shape or not value.ndim:
        return value
    return DTensor.from_local(
        value.to(parameter.device),
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
