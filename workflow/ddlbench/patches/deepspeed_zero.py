"""DeepSpeed 0.19: where the optimizers of ZeRO 1, 2 and 3 keep this rank's weights, gradients and
state.

DeepSpeed saves checkpoints by itself, into a folder of its own form, by all ranks at once. Ours are
one file per rank, so what ZeRO keeps is read and put back here. Whoever reads it calls `guard`
first.
"""

from typing import Any

from ddlbench import patches


def guard() -> None:
    """Raise ReleaseError if DeepSpeed may keep its tensors elsewhere."""
    patches.only_for("deepspeed", ("0.19",), "deepspeed_zero")


def masters(zero: Any, stage: int) -> list[Any]:
    """Return the flat tensors that the optimizer updates: this rank's part of all parameters; none
    without ZeRO.
    """
    if stage in (1, 2):
        return list(zero.single_partition_of_fp32_groups)
    return list(zero.fp32_partitioned_groups_flat) if stage == 3 else []


def spread_masters(zero: Any) -> None:
    """Make ZeRO 3's shards of the parameters from the optimizer's. Small parameters are complete on
    every rank.
    """
    for group, master in enumerate(zero.fp32_partitioned_groups_flat):
        zero.fp16_partitioned_groups_flat[group].copy_(master)
        zero._unflatten_partitioned_parameters(group)
    if zero.persistent_parameters:
        zero.persistent_parameters[0].partition(zero.persistent_parameters)
        zero.persistent_parameters[0].all_gather(zero.persistent_parameters)


def optimizer_state(optimizer: Any, of_masters: list[Any]) -> dict[str, Any]:
    """Return what it keeps for each tensor that it updates, and for each group (timm's LAMB counts
    its steps there).
    """
    return {
        "tensors": [dict(optimizer.state.get(p, {})) for p in _updated(optimizer, of_masters)],
        "groups": [
            {k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups
        ],
    }


def load_optimizer_state(optimizer: Any, of_masters: list[Any], saved: dict[str, Any]) -> None:
    """Put back what `optimizer_state` returned."""
    for group, values in zip(optimizer.param_groups, saved["groups"], strict=True):
        group.update(values)
    # torch keeps a count of steps on the host, but where its kernels count.
    counts_on_device = any(
        group.get(name) for group in optimizer.param_groups for name in ("fused", "capturable")
    )
    for p, state in zip(_updated(optimizer, of_masters), saved["tensors"], strict=True):
        optimizer.state[p] = {
            name: (
                value.to(p.device)
                if hasattr(value, "to") and (value.shape == p.shape or counts_on_device)
                else value
            )
            for name, value in state.items()
        }


def _updated(optimizer: Any, of_masters: list[Any]) -> list[Any]:
    return of_masters or [p for group in optimizer.param_groups for p in group["params"]]
