"""What DeepSpeed's one-bit optimizers need beyond DeepSpeed: a way to run on CPUs, a first step, and their whole state.

These optimizers send one bit per number. DeepSpeed packs the bits with CuPy on NVIDIA GPUs and with its own kernel on
Intel GPUs. On CPUs it has nothing, so here NumPy packs them. `deepspeed.py` uses this file.
"""

from __future__ import annotations

from typing import Any

# By our name: the name in DeepSpeed's configuration, the recipe's optimizer that it replaces, and the setting that says
# from which step on it compresses.
OPTIMIZERS = {
    "1-bit-adam": ("OneBitAdam", "adamw", "freeze_step"),
    "1-bit-lamb": ("OneBitLamb", "lamb", "freeze_step"),
    "0/1-adam": ("ZeroOneAdam", "adamw", "var_freeze_step"),
}


class Packer:
    """Packs bits with NumPy. DeepSpeed calls it in place of its kernel; it also passes the rank, which is not used."""

    @staticmethod
    def packbits(numbers: Any, count: int, rank: int) -> Any:
        """One bit per number, set where the number is not negative: float [count] -> uint8 [count / 8]."""
        import numpy as np
        import torch

        return torch.from_numpy(np.packbits(numbers.detach().flatten().numpy() >= 0))

    @staticmethod
    def unpackbits(packed: Any, count: int, rank: int) -> Any:
        """1 for a bit that is set, -1 for others: uint8 [count] -> float32 [8 * count]."""
        import numpy as np
        import torch

        return torch.from_numpy(np.unpackbits(packed.numpy()).astype(np.float32) * 2 - 1)


class Builder:
    """Replaces the class with which DeepSpeed compiles its kernel: nothing is compiled."""

    def load(self, verbose: bool = True) -> type[Packer]:
        return Packer


class _Comm:
    """deepspeed.comm with one change: `all_gather` gives what is sent the shape of the buffers that receive it.

    DeepSpeed sends a scale without dimensions into buffers of one number, which Gloo refuses.
    """

    def __getattr__(self, name: str) -> Any:
        import deepspeed.comm

        return getattr(deepspeed.comm, name)

    def all_gather(self, received: list[Any], sent: Any, group: Any = None) -> Any:
        import deepspeed.comm

        return deepspeed.comm.all_gather(received, sent.reshape(received[0].shape), group=group)


def enable_on_cpu() -> None:
    """Let DeepSpeed's 'compressed' backend run on CPUs. Call it before DeepSpeed makes an optimizer."""
    import deepspeed.ops.op_builder

    if not hasattr(deepspeed.ops.op_builder, "PackbitsBuilder"):
        deepspeed.ops.op_builder.PackbitsBuilder = Builder
    import deepspeed.runtime.comm.compressed as backend

    backend.PackbitsBuilder, backend.dist = Builder, _Comm()


def take_first_step(optimizer: Any) -> None:
    """Take the step in which DeepSpeed's one-bit optimizers only make their buffers and train nothing.

    It is taken with zero gradients, before training. So no batch is lost, and `freeze_step` counts steps of training.
    """
    import torch

    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for p in parameters:
        p.grad = None
        optimizer.state[p]["step"] = 0


FLAGS = ("initialize", "adam_freeze_key", "lamb_freeze_key", "freeze_key", "reinitial_error_buffer")


def state(optimizer: Any, reduces: bool) -> dict[str, Any]:
    """All that the optimizer keeps, the errors that it has not sent yet included.

    `reduces` says whether the engine still averages gradients itself; it is kept with the state.
    """
    return {
        "parameters": [dict(optimizer.state[p]) for group in optimizer.param_groups for p in group["params"]],
        # 1-bit LAMB keeps its momenta in one tensor. Its padding is not zero: errors were sent in it.
        "flat": list(getattr(optimizer, "exp_avg_flat", [])),
        "errors": [list(getattr(optimizer, name, [])) for name in ("worker_errors", "server_errors")],
        "flags": {name: getattr(optimizer, name) for name in FLAGS if hasattr(optimizer, name)},
        "reduces": reduces,
    }


def load(optimizer: Any, saved: dict[str, Any]) -> bool:
    """Put back what `state` returned, and return its `reduces`. DeepSpeed's own loading would discard the errors."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for p, values in zip(parameters, saved["parameters"], strict=True):
        mine = optimizer.state[p]
        for name in set(mine) - set(values):
            del mine[name]
        for name, value in values.items():
            # Copied in place, because 1-bit LAMB's momenta are views of one flat tensor.
            if hasattr(value, "copy_") and name in mine and mine[name].shape == value.shape:
                mine[name].copy_(value)
            else:
                mine[name] = value.to(p.device) if hasattr(value, "copy_") else value
    for flat, values in zip(getattr(optimizer, "exp_avg_flat", []), saved["flat"], strict=True):
        flat.copy_(values)
    device = parameters[0].device
    for name, errors in zip(("worker_errors", "server_errors"), saved["errors"], strict=True):
        if hasattr(optimizer, name):
            getattr(optimizer, name)[:] = [error.to(device) for error in errors]
    for name, value in saved["flags"].items():
        setattr(optimizer, name, value)
    return bool(saved["reduces"])
