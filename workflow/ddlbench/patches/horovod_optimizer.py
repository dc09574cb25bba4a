"""Horovod 0.28, whose DistributedOptimizer makes the optimizer anew from its groups alone.

What does not lie in the groups becomes its class's default: timm's LAMB then clips gradients at
norm 1. Without a guard: giving an optimizer what it had changes nothing where it still has it.

Upstream (horovod/horovod, torch/optimizer.py): `cls(optimizer.param_groups, ...)` calls the user's
`__init__` with defaults. Copying `optimizer.__dict__` onto the new object before its own attributes
are set would keep every setting.
"""

from typing import Any


def restore(distributed: Any, optimizer: Any) -> Any:
    """Give Horovod's optimizer all attributes of the recipe's, and return it."""
    vars(distributed).update(vars(optimizer))
    return distributed
