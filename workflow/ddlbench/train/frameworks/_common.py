"""What every framework has: options that hold for all, an engine around torch's own optimizer, and
torch.distributed.

`ddp.py`, `horovod.py` and `fsdp.py` build on `Engine` and say how gradients are reduced;
`deepspeed.py` leaves that and the update to DeepSpeed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ddlbench.core import heartbeats, zero
from ddlbench.patches import group_timeout
from ddlbench.patches.loss_scale import SkippedSteps
from ddlbench.train import checkpoint
from ddlbench.train.frameworks import TIMEOUT

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from ddlbench.core.spec import RunSpec
    from ddlbench.settings.machine import Machine
    from ddlbench.train.frameworks import Clock, Moment, Options


def flag(description: str, default: bool = False) -> dict[str, Any]:
    """Return the schema of an option that is on or off."""
    return {"description": description, "type": "boolean", "default": default}


def one_of(description: str, *values: Any, **more: Any) -> dict[str, Any]:
    """Return the schema of an option with a few values; the first one is the default."""
    return {"description": description, "enum": [*values], "default": values[0], **more}


def number(
    description: str, default: float, kind: str = "number", **limits: float
) -> dict[str, Any]:
    """Return the schema of an option that is a number, within JSON schema's limits; `kind` may be
    integer.
    """
    return {"description": description, "type": kind, **limits, "default": default}


# A study's variants set these and the framework's own OPTIONS. They are applied
# alike for all (`train/precision.py`).
OPTIONS: Options = {
    "channels_last": flag(
        "Store pictures and weights with the channel as innermost dimension, which tensor cores"
        " prefer."
    ),
    "compile": flag("Compile the model with torch.compile."),
    "compile_mode": one_of(
        "With compile: torch.compile's mode. reduce-overhead replays the steps as CUDA graphs.",
        "default",
        "reduce-overhead",
    ),
    "cudnn_benchmark": flag(
        "Let cuDNN time its algorithms for each new shape of a convolution and take the fastest."
        " Pictures have one size here, so that only first steps and last, smaller batches take"
        " longer. GPUs only."
    ),
}


def refuses(spec: RunSpec) -> str | None:
    """Return why no framework can train this run, or None.

    With CUDA graphs, the next micro-batch overwrites the gradients of the one before.
    """
    if (
        spec.option("compile_mode") == "reduce-overhead"
        and spec.option("compile")
        and spec.recipe.accumulation > 1
    ):
        return (
            "option compile_mode: reduce-overhead overwrites gradients of a recipe with"
            " accumulation; allowed: default"
        )
    return None


class Engine:
    """A model trained by an optimizer of torch's kind, with clipping and the loss scaling of fp16.

    A subclass defines how micro-batches are added up and gradients are averaged over ranks:
    `reduced_backward`, and `finish_reduction` for what is left to do before they may be read.
    """

    waits: list[tuple[Moment, Moment]] | None = None
    stage = 0  # of ZeRO: what ranks share out (`core/zero.py`)

    def __init__(self, model: nn.Module, optimizer: Optimizer, spec: RunSpec, clock: Clock) -> None:
        import torch

        self.model, self.optimizer, self.clock = model, optimizer, clock
        self.clip_norm = spec.recipe.clip_norm
        # GradScaler passes everything through where it is not enabled.
        self.scaler = torch.amp.GradScaler(spec.device, enabled=spec.recipe.precision == "fp16")
        self.skipped = SkippedSteps(self.scaler)
        self.numbers = sum(p.numel() for p in model.parameters() if p.requires_grad)
        self.workers = spec.workers

    def __call__(self, images: Tensor) -> Tensor:
        scores: Tensor = self.model(images)
        return scores

    def backward(self, loss: Tensor, last: bool) -> None:
        """Add a micro-batch's gradients to those of this step; with the `last` they are averaged
        over ranks.
        """
        self.reduced_backward(self.scaler.scale(loss), last)

    def step(self) -> None:
        """Clip and update. Under fp16, all ranks leave out a step in which a gradient is
        infinite.
        """
        self.finish_reduction()
        if self.clip_norm is not None:
            import torch

            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.update()
        self.scaler.update()
        self.optimizer.zero_grad()

    @property
    def skipped_steps(self) -> int:
        """Return the number of steps left out because a gradient overflowed; on a GPU this waits
        for it.
        """
        return self.skipped.steps

    def reduced_backward(self, loss: Tensor, last: bool) -> None:
        """Run the backward pass, and what the reduction needs with it."""
        raise NotImplementedError

    def finish_reduction(self) -> None:
        """Wait for the part of the reduction that the backward pass did not wait for."""

    def update(self) -> None:
        """Let the optimizer step."""
        self.scaler.step(self.optimizer)

    def state(self) -> dict[str, Any]:
        """Return all that this rank changes by training.

        Tensors are not copied: save them before the next step.
        """
        return {
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "skipped_steps": self.skipped_steps,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Resume from `state`, which this rank of an equal run returned."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.skipped.before = state["skipped_steps"]

    def state_bytes(self) -> dict[str, int]:
        """Return the bytes that this rank holds, by what they are for (`frameworks.Engine`)."""
        return {
            "parameters_bytes": bytes_of([*self.model.parameters(), *self.model.buffers()]),
            "gradients_bytes": round(zero.gradients_bytes(self.numbers, self.stage, self.workers)),
            "optimizer_bytes": bytes_of(tensors_in(dict(self.optimizer.state))),
        }


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of tensors' storages, each counted once; of a sharded tensor, this
    rank's.
    """
    local = (tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors)
    storages = (tensor.untyped_storage() for tensor in local)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def tensors_in(state: Any) -> list[Tensor]:
    """List all tensors in nested dicts, lists and tuples."""
    return [tensor for _, tensor in checkpoint.tensors(state)]


def timeout_s(spec: RunSpec, machine: Machine) -> int:
    """Return the timeout of a rank that waits for another, at the start and in every collective
    [s].

    It is not less than the time in which the supervisor calls a rank silent. Otherwise the rank
    that waits would end first, and the silent one, ended for it, would look killed.
    """
    return max(
        machine.start_timeout_s, round(2 * heartbeats.noticed_s(machine.silent_s, spec.nodes))
    )


def environment(spec: RunSpec, machine: Machine) -> dict[str, str]:
    """Return the variable that sets the timeout of ranks on torch.distributed."""
    return {TIMEOUT: str(timeout_s(spec, machine))}


def set_timeout() -> timedelta:
    """Set the timeout of ranks in torch.distributed's groups that are made from here on, and return
    it.
    """
    return group_timeout.set_timeout(float(os.environ[TIMEOUT]) if TIMEOUT in os.environ else None)


def average(tensor: Tensor) -> Tensor:
    """Return the mean of a tensor over ranks, the same on all; for frameworks on
    torch.distributed.
    """
    import torch.distributed as dist

    dist.all_reduce(tensor)
    return tensor / dist.get_world_size()


def sync_batch_norm() -> type[nn.Module]:
    """Return PyTorch's batch norm over the images of all ranks; for frameworks on
    torch.distributed.
    """
    import torch

    return torch.nn.SyncBatchNorm


def gather(tensor: Tensor) -> Tensor:
    """Return the tensors of all ranks, [ranks, *shape]; for frameworks on torch.distributed."""
    import torch
    import torch.distributed as dist

    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return torch.stack(parts)


def lacks(device: str, options: Mapping[str, Any]) -> str | None:
    """Report that NCCL is missing, without which GPUs cannot communicate; return None if it is
    there, or not needed.
    """
    if device == "cuda":
        import torch.distributed as dist

        if not dist.is_nccl_available():
            return (
                "this PyTorch was built without NCCL, by which GPUs meet: install one for CUDA"
                " (docs/clusters.md)"
            )
    return None


def close() -> None:
    """Leave torch.distributed's process group."""
    import torch.distributed as dist

    dist.destroy_process_group()
