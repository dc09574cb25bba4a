"""DeepSpeed 0.19.6: its one-bit optimizers spend a first step without training, and save less than
they change.

Later releases have no such optimizers (github.com/deepspeedai/DeepSpeed, issue 8489).

Upstream (deepspeedai/DeepSpeed): the first call of `step` only makes buffers, so the gradients of
one batch are lost; making the buffers in `__init__` would patch it. `load_state_dict` throws away
the errors that were not sent yet, so a training that goes on is another one; saving `worker_errors`
and `server_errors` in `state_dict` would patch that.
"""

from typing import Any

from ddlbench import patches

FLAGS = ("initialize", "adam_freeze_key", "lamb_freeze_key", "freeze_key", "reinitial_error_buffer")
ERRORS = (
    "worker_errors",
    "server_errors",
)  # of a rank's messages, and of the part that it adds up for all


def guard() -> None:
    """Raise ReleaseError if DeepSpeed has no one-bit optimizers, or others."""
    patches.only_for("deepspeed", ("0.19.6",), "deepspeed_one_bit")


def take_first_step(optimizer: Any) -> None:
    """Take the step in which DeepSpeed's one-bit optimizers only make their buffers and train
    nothing.

    It is taken with zero gradients, before training. So no batch is lost, and `freeze_step` counts
    steps of training. Raises ReleaseError.
    """
    guard()
    import torch

    parameters = _parameters(optimizer)
    for p in parameters:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for p in parameters:
        p.grad = None
        optimizer.state[p]["step"] = 0


def state(optimizer: Any, reduces: bool) -> dict[str, Any]:
    """Return the complete state of the optimizer, including the errors that it has not sent yet.

    `reduces`: whether the engine still averages gradients itself. It is stored with the state.
    """
    return {
        "parameters": [dict(optimizer.state[p]) for p in _parameters(optimizer)],
        # 1-bit LAMB keeps its momenta in one tensor. Its padding is not zero: errors were sent in
        # it.
        "flat": list(getattr(optimizer, "exp_avg_flat", [])),
        "errors": [list(getattr(optimizer, name, [])) for name in ERRORS],
        "flags": {name: getattr(optimizer, name) for name in FLAGS if hasattr(optimizer, name)},
        "reduces": reduces,
    }


def load(optimizer: Any, saved: dict[str, Any]) -> bool:
    """Put back what `state` returned, and return its `reduces`. DeepSpeed's own loading would
    discard the errors.
    """
    parameters = _parameters(optimizer)
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
    for name, errors in zip(ERRORS, saved["errors"], strict=True):
        if hasattr(optimizer, name):
            getattr(optimizer, name)[:] = [error.to(device) for error in errors]
    for name, value in saved["flags"].items():
        setattr(optimizer, name, value)
    return bool(saved["reduces"])


def _parameters(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]
